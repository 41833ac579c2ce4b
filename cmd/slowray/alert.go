package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/alert"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
)

// alertsDir is where slowray record keeps alerts, next to historyDir.
const alertsDir = "/var/lib/slowray/alerts"

type alertCmd struct {
	Test   alertTestCmd   `cmd:"" help:"Send a test message to the receivers of a file of rules."`
	Status alertStatusCmd `cmd:"" help:"Show which incidents are open, and what became of messages."`
}

type alertTestCmd struct {
	Config string   `arg:"" complete:"files" help:"The file of rules, as of slowray record --alerts."`
	To     []string `placeholder:"NAME" sep:"," help:"Only to these receivers."`
}

// Help is printed by --help, above the flags.
func (*alertTestCmd) Help() string {
	return `Reads the file of rules as slowray record --alerts does, and sends a message to each receiver that says that nothing is wrong. PagerDuty and Alertmanager get its end right after it.

Exit status: 0 all took it, 2 the file is wrong, or one did not take it.`
}

// Run sends.
func (c *alertTestCmd) Run(ctx context.Context, s *streams) error {
	rules, err := alert.Load(c.Config)
	if err != nil {
		return fmt.Errorf("alert test: %w", err)
	}
	var names []string
	for i := range rules.Receivers {
		names = append(names, rules.Receivers[i].Name)
	}
	for _, n := range c.To {
		if !slices.Contains(names, n) {
			return fmt.Errorf("alert test: there is no receiver %q: %s", n, strings.Join(names, ", "))
		}
	}
	host, _ := os.Hostname()
	failed := 0
	for i := range rules.Receivers {
		r := &rules.Receivers[i]
		if len(c.To) > 0 && !slices.Contains(c.To, r.Name) {
			continue
		}
		if err := alert.SendTest(ctx, r, host); err != nil {
			failed++
			fmt.Fprintf(s.out, "%s: failed: %s\n", printable.Text(r.Name), printable.Text(err.Error()))
		} else {
			fmt.Fprintf(s.out, "%s: took it\n", printable.Text(r.Name))
		}
	}
	if failed > 0 {
		return exit(exitFailed)
	}
	return nil
}

type alertStatusCmd struct {
	JSON bool   `name:"json" help:"Print JSON."`
	Dir  string `default:"/var/lib/slowray/alerts" placeholder:"D" complete:"dirs" help:"Where they are kept: next to the history (${default})."`
}

// Help is printed by --help, above the flags.
func (*alertStatusCmd) Help() string {
	return `Reads what slowray record --alerts or slowray fleet watch --alerts keeps, while it runs or after it.

Exit status: 0 nothing is open, 1 something is, 2 could not read it.`
}

// Run shows it.
func (c *alertStatusCmd) Run(s *streams) error {
	st, err := alert.ReadStatus(c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("alert status: there are no alerts in %s. slowray record --alerts FILE keeps them in alerts next to its --dir, slowray fleet watch --alerts FILE in its --alerts-dir: both say where as they begin; give that with --dir", c.Dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("alert status: %s may only be read by root: run this as root", c.Dir)
	case err != nil:
		return fmt.Errorf("alert status: %w", err)
	}
	if c.JSON {
		err = printable.WriteJSON(s.out, st)
	} else {
		err = c.print(s, st)
	}
	if err == nil && len(st.Open) > 0 {
		err = exit(exitFindings)
	}
	return err
}

func (c *alertStatusCmd) print(s *streams, st *alert.Status) error {
	if len(st.Open) == 0 {
		fmt.Fprintln(s.out, "OK  no incident is open")
	}
	for _, i := range st.Open {
		fmt.Fprintf(s.out, "%s  since %s  %s\n", strings.ToUpper(string(i.Severity)), clockText(i.Began), printable.Text(i.Title))
		if i.Impact != "" {
			fmt.Fprintf(s.out, "   %s\n", printable.Text(i.Impact))
		}
	}
	for _, name := range st.Damaged {
		fmt.Fprintf(s.out, "DAMAGED  %s was moved aside: what was open and waited in it is lost; remove it once you have seen it\n", printable.Text(name))
	}
	names := make([]string, 0, len(st.Counts))
	for n := range st.Counts {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		k := st.Counts[n]
		line := fmt.Sprintf("%s: %s sent, %s waiting", printable.Text(n), figure.Count(k.Sent), figure.Count(uint64(st.Waiting[n])))
		if k.Refused > 0 {
			line += ", " + figure.Count(k.Refused) + " refused"
		}
		if k.GivenUp > 0 {
			line += ", " + figure.Count(k.GivenUp) + " given up"
		}
		if k.LastError != "" {
			line += "; last attempt: " + printable.Text(k.LastError)
		}
		if _, err := fmt.Fprintln(s.out, line); err != nil {
			return err
		}
	}
	return nil
}
