package main

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/compare"
)

type compareCmd struct {
	A    string `arg:"" help:"A file made with slowray why --save."`
	B    string `arg:"" help:"Another one, usually the later."`
	JSON bool   `name:"json" help:"Print the comparison as JSON."`
}

// Help is printed by --help, above the flags.
func (*compareCmd) Help() string {
	return `Puts two saved observations side by side: requests and where their time goes, findings that are gone or new, CPU and counters, settings that differ. Requests per second and the use of the CPUs are judged against their spread within each window; the other figures are only told, with their factor.

Exit status: 0 no difference that matters; 1 differences; 2 could not run.`
}

// Run compares.
func (c *compareCmd) Run(s *streams) error {
	a, err := observe.Load(c.A)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	b, err := observe.Load(c.B)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	doc := compare.Compare(a, b)
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
