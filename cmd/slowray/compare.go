package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/compare"
)

type compareCmd struct {
	A    string   `arg:"" optional:"" complete:"files" help:"A file made with slowray why --save."`
	B    string   `arg:"" optional:"" complete:"files" help:"Another one, usually the later."`
	JSON bool     `name:"json" help:"Print the comparison as JSON."`
	At   []string `placeholder:"T" sep:"none" help:"Instead of a file: the window of that moment of the history that slowray record keeps, as in slowray why --at; may be given twice."`
	Dir  string   `default:"${history}" placeholder:"D" complete:"dirs" help:"With --at: where the history is (${default})."`
}

// Validate is called by the command line parser.
func (c *compareCmd) Validate() error {
	given := len(c.At)
	for _, file := range []string{c.A, c.B} {
		if file != "" {
			given++
		}
	}
	if given != 2 {
		return errors.New("give two windows to compare: files, or times with --at")
	}
	return nil
}

// load reads the two windows: files first, and then times in their order.
func (c *compareCmd) load(s *streams) ([]*observe.Observation, error) {
	var both []*observe.Observation
	asked := map[string]string{}
	for _, file := range []string{c.A, c.B} {
		if file == "" {
			continue
		}
		o, err := observe.Load(file)
		if err != nil {
			return nil, err
		}
		both = append(both, o)
	}
	for i := range c.At {
		f := atFlags{At: &c.At[i], Dir: c.Dir}
		windows, err := f.windows(s, 0)
		if err != nil {
			return nil, err
		}
		if earlier, same := asked[windows[0].Path]; same {
			return nil, fmt.Errorf("%s and %s are in one window, from %s to %s: choose another time", earlier, c.At[i], clockText(windows[0].Start), clockText(windows[0].End))
		}
		asked[windows[0].Path] = c.At[i]
		o, err := observe.Load(windows[0].Path)
		if err != nil {
			return nil, err
		}
		both = append(both, o)
	}
	return both, nil
}

// Help is printed by --help, above the flags.
func (*compareCmd) Help() string {
	return `Puts two saved observations side by side: requests and where their time goes, findings that are gone or new, CPU and counters, settings that differ. Requests per second and the use of the CPUs are judged against their spread within each window; the other figures are only told, with their factor.

Exit status: 0 no difference that matters; 1 differences; 2 could not run.`
}

// Run compares.
func (c *compareCmd) Run(ctx context.Context, s *streams) error {
	both, err := c.load(s)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	doc := compare.Compare(ctx, both[0], both[1])
	write := doc.Text
	if c.JSON {
		write = doc.JSON
	}
	if err := write(s.out); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	if doc.Differs() {
		return exit(exitFindings)
	}
	return nil
}
