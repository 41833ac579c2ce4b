package main

import (
	"fmt"

	"github.com/slowray/slowray/internal/catalogue"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/printable"
)

type causesCmd struct {
	ID   string `arg:"" optional:"" complete:"causes" help:"Tell all about this one."`
	JSON bool   `name:"json" help:"Print JSON (schema/causes.schema.json)."`

	languageFlag `embed:""`
}

// noSuchCause says which cause was meant, perhaps.
func noSuchCause(id string) error {
	var ids []string
	for _, c := range cause.Catalogue() {
		ids = append(ids, string(c.ID))
	}
	return fmt.Errorf("%s: no such cause%s (slowray causes lists them)", id, commandline.DidYouMean(id, ids))
}

// Run lists the catalogue, or shows the page of one cause.
func (c *causesCmd) Run(s *streams) error {
	reader, err := c.language()
	if err != nil {
		return err
	}
	all := catalogue.New(cause.Catalogue(), catalogue.Incidents())
	if c.ID != "" {
		e := all.Find(cause.ID(c.ID))
		if e == nil {
			return noSuchCause(c.ID)
		}
		if !c.JSON {
			e.Title = reader.Text(e.Title)
			_, err := fmt.Fprint(s.out, e.Text(commandline.Columns(s.out)))
			return err
		}
		all.Causes = []catalogue.Entry{*e}
	}
	if c.JSON {
		return printable.WriteJSON(s.out, all)
	}
	for l := cause.LayerPath; l <= cause.LayerMachine; l++ {
		fmt.Fprintln(s.out, reader.Text(l.String()))
		var rows [][]string
		for _, e := range all.Causes {
			if e.Layer == l.String() {
				mark := " "
				if e.Provable {
					mark = "*"
				}
				rows = append(rows, []string{mark + " " + string(e.ID), reader.Text(e.Title)})
			}
		}
		if _, err := fmt.Fprint(s.out, printable.Table(rows, commandline.Columns(s.out))); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(s.out, "\n"+printable.Fold(reader.Text("* slowray prove ID can show it: it makes the fix, measures, and undoes it."), commandline.Columns(s.out)))
	return err
}
