package safefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/privsep"
)

// What is done with a file is done as its owner: by slowray itself where that is
// who it is, and in its own root directory; otherwise by a process that has the
// owner's rights only. In another root directory "root" may be one with few rights.

// request is what is done, in either process.
type request struct {
	Op   string `json:"op"`
	Spot Spot   `json:"spot"`
	Was  *File  `json:"was,omitempty"`
	Edit Edit   `json:"edit"`
}

// answer is what came of it.
type answer struct {
	File   *File  `json:"file,omitempty"`
	Text   string `json:"text,omitempty"` // of an error
	Unsafe bool   `json:"unsafe,omitempty"`
	Errno  int    `json:"errno,omitempty"`
}

const task = "safefile"

// acting says that this process does what another has asked for.
var acting bool

func init() {
	privsep.Register(task, func(text []byte, files []int) []byte {
		acting = true
		var r request
		var a answer
		if err := json.Unmarshal(text, &r); err != nil || len(files) != 1 {
			a.fail(errors.New("the request is not understood"))
		} else {
			a = serve(TreeAt(files[0], "/"), r)
		}
		out, _ := json.Marshal(a)
		return out
	})
}

// Read reads the file at s. Its content is as hostile as its owner is.
func (t *Tree) Read(s Spot) (*File, error) {
	a, err := t.ask(request{Op: "read", Spot: s})
	if err == nil && a.File == nil {
		err = privsep.ErrEnded
	}
	return a.File, err
}

// Write gives the file at s another content, whole or not at all (unless in
// place), if it is still as it was read.
func (t *Tree) Write(s Spot, was *File, e Edit) error { return t.change("write", s, was, e) }

// Sibling makes the unfinished file of an edit, next to the file at s.
func (t *Tree) Sibling(s Spot, was *File, e Edit) error { return t.change("sibling", s, was, e) }

// Drop removes an unfinished file, if there is one.
func (t *Tree) Drop(s Spot, temp string) error { return t.change("drop", s, nil, Edit{Temp: temp}) }

func (t *Tree) change(op string, s Spot, was *File, e Edit) error {
	if was != nil {
		was = &File{Attr: was.Attr, Inode: was.Inode, CTimeNS: was.CTimeNS}
	}
	_, err := t.ask(request{op, s, was, e})
	return err
}

func (t *Tree) ask(r request) (a answer, err error) {
	if t.own() && os.Geteuid() == int(r.Spot.Owner) {
		a = serve(t, r)
	} else {
		text, err := json.Marshal(r)
		if err == nil {
			text, err = privsep.Run(privsep.User{UID: r.Spot.Owner, GID: r.Spot.Group}, task, text, t.dir)
		}
		if err == nil && json.Unmarshal(text, &a) != nil {
			err = privsep.ErrEnded
		}
		if err != nil {
			return a, fmt.Errorf("%s: %w", r.Spot.Path, err)
		}
	}
	return a, a.err(r.Spot.Path)
}

// serve does what is asked for, with the rights that this process has.
func serve(t *Tree, r request) (a answer) {
	switch c, err := t.at(r.Spot); {
	case err != nil:
		a.fail(err)
	case r.Op != "read" && r.Op != "drop" && r.Was == nil:
		c.close()
		a.fail(errors.New("the request is not understood"))
	default:
		defer c.close()
		switch r.Op {
		case "read":
			a.File, err = c.read()
		case "write":
			err = t.write(r.Spot, r.Was, r.Edit)
		case "sibling":
			err = c.sibling(r.Spot, r.Was, r.Edit)
		case "drop":
			err = c.drop(r.Edit.Temp)
		}
		a.fail(err)
	}
	return a
}

func (c *chain) drop(temp string) error {
	if !tempName.MatchString(temp) {
		return fmt.Errorf("%q is no name of an unfinished file", temp)
	}
	err := unix.Unlinkat(c.dir().fd, temp, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
		return nil // none could be made there either
	}
	return err
}

func (a *answer) fail(err error) {
	if err == nil {
		return
	}
	a.Text, a.Unsafe = err.Error(), errors.Is(err, ErrUnsafe)
	var code unix.Errno
	if errors.As(err, &code) {
		a.Errno = int(code)
	}
}

// err is the error of an answer about a file, on one line.
func (a *answer) err(name string) error {
	if a.Text == "" {
		return nil
	}
	e := &failure{text: strings.Join(strings.Fields(a.Text), " ")}
	e.text = strings.ToValidUTF8(e.text[:min(len(e.text), maxText)], "")
	if !strings.Contains(e.text, name) {
		e.text = name + ": " + e.text
	}
	if a.Unsafe {
		e.is = append(e.is, ErrUnsafe)
	}
	if a.Errno != 0 {
		e.is = append(e.is, unix.Errno(a.Errno))
	}
	return e
}

// maxText is how much of an error is passed on, in bytes.
const maxText = 1000

// failure is an error that may have come from another process.
type failure struct {
	text string
	is   []error
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.is }
