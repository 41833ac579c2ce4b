package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/prove/journal"
)

type undoCmd struct {
	IDs    []string `arg:"" optional:"" name:"id" help:"Put back only these (see --list)."`
	List   bool     `help:"Only show what is not put back: what was, what is, who did it."`
	All    bool     `help:"With --list: also what is put back already."`
	Forget bool     `help:"Put nothing back: strike the given IDs off the list, because they are seen to by hand."`
	JSON   bool     `name:"json" help:"Print JSON (schema slowray.undo/1)."`
	State  string   `default:"${state}" placeholder:"DIR" help:"Directory of the journal (${default})."`

	languageFlag `embed:""`
}

// Help is printed by --help, above the flags.
func (*undoCmd) Help() string {
	return `Puts back what slowray has changed and left: changes that were kept, and those of runs that were killed together with their watchdog. A run that is still going on is ended, and its changes are put back. What somebody else has changed since is reported and left as it is.

Exit status: 0 all is put back, or there was nothing; 1 something was not put back; 2 could not run.`
}

// Validate is called by the command line parser.
func (c *undoCmd) Validate() error {
	switch {
	case c.All && !c.List:
		return errors.New("--all goes with --list")
	case c.List && len(c.IDs) > 0:
		return errors.New("--list shows all entries: give no ID")
	case c.Forget && (c.List || len(c.IDs) == 0):
		return errors.New("--forget goes with IDs (slowray undo --list shows them)")
	}
	return nil
}

// Run puts back, or lists.
func (c *undoCmd) Run(s *streams) error {
	doc, err := c.work()
	if doc == nil {
		return err
	}
	if err != nil && len(doc.Outcomes) == 0 {
		return err
	}
	if err := errors.Join(c.print(s.out, doc), err); err != nil {
		return err
	}
	if doc.Left() {
		return exit(exitFindings)
	}
	return nil
}

func (c *undoCmd) print(w io.Writer, doc *journal.Document) error {
	reader, err := c.language()
	switch {
	case err != nil:
		return err
	case c.JSON:
		return doc.JSON(w)
	case c.List, c.Forget:
		return doc.List(w, commandline.Columns(w), reader)
	}
	return doc.Undone(w, commandline.Columns(w), reader)
}

// work does what is to be done; the document is nil where nothing could be.
func (c *undoCmd) work() (*journal.Document, error) {
	j, err := journal.Existing(c.State)
	if errors.Is(err, fs.ErrNotExist) { // nothing was ever changed
		if len(c.IDs) > 0 {
			err = fmt.Errorf("journal: %q: %w", c.IDs[0], journal.ErrUnknown)
		} else {
			err = nil
		}
		return journal.NewDocument(nil, nil), err
	}
	if err != nil {
		return nil, err
	}
	defer j.Close()
	if c.Forget {
		if err := j.Forget(c.IDs...); err != nil {
			return nil, err
		}
		left, err := j.List()
		return journal.NewDocument(left, nil), err
	}
	if !c.List {
		outcomes, undoErr := j.Undo(c.IDs...)
		left, err := j.List()
		return journal.NewDocument(left, outcomes), errors.Join(undoErr, err)
	}
	list, err := j.List()
	if err != nil {
		return nil, err
	}
	if c.All {
		closed, err := j.History()
		if err != nil {
			return nil, err
		}
		list = slices.Concat(closed, list)
	}
	return journal.NewDocument(list, nil), nil
}
