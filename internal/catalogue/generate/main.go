// Command generate writes the pages of all causes into a directory, and takes
// away the pages of causes that are no more.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/slowray/slowray/internal/catalogue"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/lab/incident"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	c := catalogue.New(cause.Catalogue(), incident.All())
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
