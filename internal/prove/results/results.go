// Package results keeps what experiments came to, for whoever asks later.
//
// In: the document of slowray prove or tune, as JSON. Out: a file of its own below
// the journal's directory, of which the latest are kept. It decides nothing.
package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	folder = "results" // below the journal's directory
	most   = 200       // files
	suffix = ".json"
)

// Dir is where the results are, below the journal's directory.
func Dir(journal string) string { return filepath.Join(journal, folder) }

// Keep writes a document into a file named after its time and subject, whole or
// not at all; only its owner may read it. The oldest of more than 200 are removed.
// The error is one line.
func Keep(journal string, at time.Time, subject string, doc []byte) (err error) {
	dir := Dir(journal)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep result: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	defer root.Close()
	name := at.UTC().Format("20060102T150405.000000Z") + "-" + plain(subject) + suffix
	tmp := name + ".new"
	if err := root.WriteFile(tmp, doc, 0o600); err != nil {
		return fmt.Errorf("keep result: %w", errors.Join(err, root.Remove(tmp)))
	}
	if err := root.Rename(tmp, name); err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	return prune(root)
}

// plain is a subject as part of a name of a file: causes are kebab-case.
func plain(subject string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, subject)
	return name[:min(len(name), 64)]
}

// prune removes what is too old. Names begin with their time.
func prune(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, suffix) })
	slices.Sort(names)
	for len(names) > most {
		if err := root.Remove(names[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep result: %w", err)
		}
		names = names[1:]
	}
	return nil
}
