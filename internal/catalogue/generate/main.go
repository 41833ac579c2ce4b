// Command generate writes the pages of all causes into a directory, takes away the
// pages of causes that are no more, and writes the list of the lab's incidents.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/slowray/slowray/internal/catalogue"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/lab/incident"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: generate DIR INCIDENTS")
		os.Exit(2)
	}
	list := incidents()
	if err := errors.Join(write(os.Args[1], list), writeIncidents(os.Args[2], list)); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(dir string, list []catalogue.Incident) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	c := catalogue.New(cause.Catalogue(), list)
	pages := c.Pages()
	for _, path := range old {
		if _, ok := pages[filepath.Base(path)]; !ok {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// incidents are those that the lab declares.
func incidents() []catalogue.Incident {
	var list []catalogue.Incident
	for _, i := range incident.All() {
		of := catalogue.Incident{Name: i.Name, Summary: i.Summary, Control: i.Control, Causes: []cause.ID{}}
		for _, f := range i.Faults {
			for _, id := range append([]string{f.Cause}, f.Or...) {
				if id := cause.ID(id); !f.Decoy && id != "" && !slices.Contains(of.Causes, id) {
					of.Causes = append(of.Causes, id)
				}
			}
		}
		list = append(list, of)
	}
	for _, g := range incident.Guests() {
		list = append(list, catalogue.Incident{Name: g.Name, Summary: g.Summary, Machine: true, Causes: []cause.ID{cause.ID(g.Cause)}})
	}
	return list
}

func writeIncidents(name string, list []catalogue.Incident) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	if err := enc.Encode(list); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}
