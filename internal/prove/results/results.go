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
	"strings"
	"time"

	"github.com/slowray/slowray/internal/safefile"
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
	above, err := safefile.OpenDir(journal)
	if err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	defer above.Close()
	dir, err := above.Sub(folder)
	if err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	defer dir.Close()
	name := at.UTC().Format("20060102T150405.000000Z") + "-" + plain(subject) + suffix
	if err := dir.Replace(name, doc); err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	if err := prune(dir.Root); err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	return nil
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
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	var names []string // in order
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	for _, name := range names[:max(0, len(names)-most)] {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
