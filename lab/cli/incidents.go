package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/lab"
)

// list lists the incidents.
func list(s *streams) error {
	var rows [][]string
	for _, i := range lab.List() {
		expect := strings.Join(i.Causes, " ")
		if i.Control {
			expect = "no finding"
		}
		text := i.Summary
		if expect != "" {
			text += " [" + expect + "]"
		}
		rows = append(rows, []string{i.Name, text})
	}
	_, err := fmt.Fprint(s.out, printable.Table(rows, commandline.Columns(s.out)))
	return err
}

// run runs incidents; the exit status is 1 when slowray was wrong.
func run(ctx context.Context, s *streams, c *commandline.LabRun) error {
	switch {
	case c.Tune:
		return tune(ctx, s, c)
	case c.Prove:
		return prove(ctx, s, c)
	case c.All || c.Score || c.Pairs+c.Healthy > 0:
		return score(ctx, s, c)
	}
	names := c.Names
	if len(names) == 1 && names[0] == "all" {
		names = nil
		for _, i := range lab.List() {
			names = append(names, i.Name)
		}
	}
	var wrong []string
	for range max(c.Times, 1) {
		for _, name := range names {
			r, err := lab.Run(ctx, name, lab.Options{
				Out: s.out, Seed: c.Seed, Window: c.Window, WholeHost: c.WholeHost,
				TruthOnly: c.TruthOnly, JSON: c.JSON, Save: c.Save, Looks: c.Looks, Verbose: c.Verbose,
			})
			if err != nil {
				return err
			}
			if !r.OK {
				wrong = append(wrong, fmt.Sprintf("%s (seed %d)", name, r.Seed))
			}
		}
	}
	if len(wrong) > 0 {
		if !c.JSON {
			fmt.Fprintf(s.out, "mismatch: %s\n", strings.Join(wrong, ", "))
		}
		return commandline.Exit(commandline.ExitFindings)
	}
	return nil
}

// tune lets slowray tune fix an incident; the exit status is 1 when what it leaves
// is not as it should be.
func tune(ctx context.Context, s *streams, c *commandline.LabRun) error {
	right := true
	for range max(c.Times, 1) {
		r, err := lab.Tune(ctx, c.Names[0], lab.Options{
			Out: s.out, Seed: c.Seed, WholeHost: c.WholeHost, JSON: c.JSON, Verbose: c.Verbose,
		}, lab.TuneOptions{HTML: c.HTML})
		if err != nil {
			return err
		}
		right = right && r.OK
	}
	if !right {
		return commandline.Exit(commandline.ExitFindings)
	}
	return nil
}

// prove makes proofs; the exit status is 1 when a verdict is wrong, or something
// was not put back.
func prove(ctx context.Context, s *streams, c *commandline.LabRun) error {
	names := c.Names
	if c.All {
		for _, p := range lab.Proofs() {
			if !slices.Contains(names, p.Incident) {
				names = append(names, p.Incident)
			}
		}
	}
	var all []lab.ProofResult
	wrong := false
	for _, name := range names {
		results, err := lab.Prove(ctx, name, lab.Options{Out: s.out, Seed: c.Seed, JSON: c.JSON, Verbose: c.Verbose})
		if err != nil {
			return err
		}
		for _, r := range results {
			wrong = wrong || !r.OK
		}
		all = append(all, results...)
	}
	if c.JSON {
		if err := printable.WriteJSON(s.out, all); err != nil {
			return err
		}
	}
	if wrong {
		return commandline.Exit(commandline.ExitFindings)
	}
	return nil
}

// score runs a scoreboard; the exit status is 1 when it is not what is asked for.
func score(ctx context.Context, s *streams, c *commandline.LabRun) error {
	names := c.Names
	if c.All {
		for _, i := range lab.List() {
			names = append(names, i.Name)
		}
	}
	board, err := lab.RunBoard(ctx, lab.Board{Names: names, Pairs: c.Pairs, Healthy: c.Healthy, Times: c.Times}, lab.Options{
		Out: s.out, Seed: c.Seed, Window: c.Window, WholeHost: c.WholeHost, JSON: c.JSON, Save: c.Save, Verbose: c.Verbose,
	})
	if err != nil {
		return err
	}
	if !board.OK() {
		return commandline.Exit(commandline.ExitFindings)
	}
	return nil
}

// demo shows slowray at work on an incident.
func demo(ctx context.Context, s *streams, c *commandline.LabDemo) error {
	return lab.Demo(ctx, c.Name, lab.Options{Out: s.out, Window: c.Window, Seed: c.Seed})
}

// shell gives a shell inside an incident.
func shell(ctx context.Context, s *streams, c *commandline.LabShell) error {
	err := lab.Shell(ctx, c.Name, lab.Options{Out: s.out, Keep: c.Keep, Seed: c.Seed})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
