package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
)

func init() {
	change.Register(cause.ChangeConfig, files{})
	change.Register(cause.ChangeSetting, settings{})

}

// files is the Doer of cause.ChangeConfig.
type files struct{}

// kept is the State's data of a changed file: all that is needed to put it, and
// the server, back.
type kept struct {
	Server string `json:"server"`
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`           // of the master, in ticks since the boot
	Shared bool   `json:"shared"`          // the file is seen from slowray's own root directory too, at the same path
	Main   string `json:"main"`            // its main file
	Path   string `json:"path"`            // of the changed file in the server's root, behind symbolic links
	Line   int    `json:"line"`            // where the change begins
	Old    packed `json:"old"`             // the file as it was
	OldSum string `json:"old_sum"`         // SHA-256 of it
	NewSum string `json:"new_sum"`         // and of what it is changed to
	Attr   attr   `json:"attr"`            // mode, owner, times, extended attributes
	Place  bool   `json:"place,omitempty"` // written in place, because it is a mount or has other names
	Temp   string `json:"temp"`            // name of the temporary file in the same directory
}

// Times that are waited for.
const (
	testTime   = 10 * time.Second // for the server's own test
	reloadTime = 10 * time.Second // until a new configuration is in force
	pollEvery  = 20 * time.Millisecond
)

// Prepare implements change.Doer.
func (files) Prepare(c *cause.Change) (change.State, error) {
	if err := checkValue(c); err != nil {
		return change.State{}, err
	}
	s, err := attach(c.Server, c.PID)
	if err != nil {
		return change.State{}, err
	}
	if err := s.stale(); err != nil {
		return change.State{}, err
	}
	root, err := openRoot(s.rootDir)
	if err != nil {
		return change.State{}, err
	}
	defer root.close()
	f, e, err := s.find(root, c)
	if err != nil {
		return change.State{}, err
	}
	defer func() { f.close() }()
	// A file that only the server's mounts show, or that is a mount, is reached there.
	shared := s.shared || !f.inPlace && seenFromHost(s.rootDir, f.path)
	if shared && !s.shared {
		name := f.path
		f.close()
		own, err := openRoot("/")
		if err != nil {
			return change.State{}, err
		}
		defer own.close()
		if f, err = own.open(name); err != nil {
			return change.State{}, err
		}
	}
	if err := f.writable(); err != nil {
		return change.State{}, err
	}
	if err := s.kind.allowed(c, s, e); err != nil {
		return change.State{}, err
	}
	if err := s.test(); err != nil {
		return change.State{}, fmt.Errorf("%s: the configuration as it stands is refused by the server's own test: %w", c.Server, err)
	}
	data := kept{Server: c.Server, PID: c.PID, Start: s.start, Shared: shared, Main: s.files[0], Path: f.path, Line: e.line,
		Old: pack(f.text), OldSum: sum(f.text), NewSum: sum(e.apply(f.text)), Attr: f.attr, Place: f.inPlace, Temp: tempName()}
	raw, err := json.Marshal(data)
	if err != nil {
		return change.State{}, err
	}
	return change.State{Was: e.was, Data: raw}, nil
}

// found is what a State leads to now.
type found struct {
	*kept
	old, new []byte
	edit     edit
	root     *root
	file     *file // nil: it is gone
	server   *server
	gone     string // why there is no server any more
	problem  error  // why the server, which runs, cannot be told
}

func (d *found) close() {
	if d.file != nil {
		d.file.close()
	}
	if d.root != nil {
		d.root.close()
	}
}

// open reads a State and finds the file and the server again. The server may
// have been started again since: it is then found by its configuration.
func open(c *cause.Change, was change.State) (*found, error) {
	d := &found{kept: &kept{}}
	if err := json.Unmarshal(was.Data, d.kept); err != nil {
		return nil, fmt.Errorf("config: the kept state cannot be read: %w", err)
	}
	var err error
	if d.old, err = d.Old.unpack(); err != nil || sum(d.old) != d.OldSum {
		return nil, fmt.Errorf("config: the kept content of %s is damaged", d.Path)
	}
	k, ok := kinds[d.Server]
	if !ok {
		return nil, fmt.Errorf("config: no server of kind %q is known", d.Server)
	}
	if d.edit, err = k.edit(string(d.old), placeOf(c, c.Line)); err != nil {
		return nil, fmt.Errorf("config: %s: %w", d.Path, err)
	}
	if d.new = d.edit.apply(d.old); sum(d.new) != d.NewSum {
		return nil, fmt.Errorf("config: the kept state of %s is of another change", d.Path)
	}
	d.findServer()
	dir := "/"
	switch {
	case d.Shared:
	case d.gone == "":
		dir = fmt.Sprintf("/proc/%d/root", d.PID)
	default:
		return d, nil
	}
	if d.root, err = openRoot(dir); err != nil {
		return nil, err
	}
	d.file, err = d.root.open(d.Path)
	if errors.Is(err, errNoFile) {
		err = nil
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// findServer looks for the process of the State, or for its successor.
func (d *found) findServer() {
	s, err := attach(d.Server, d.PID)
	if err == nil && s.start == d.Start {
		d.server = s
		return
	}
	if t, gone := startTicks(d.PID); gone == nil && t == d.Start {
		d.problem = err
		return
	}
	d.gone = fmt.Sprintf("%s (pid %d) has ended", d.Server, d.PID)
	if !d.Shared {
		return
	}
	if next := successor(d.Server, d.Main); next != nil {
		d.server, d.gone = next, ""
	}
}

// Apply implements change.Doer.
func (files) Apply(c *cause.Change, was change.State) error {
	d, err := open(c, was)
	if err != nil {
		return err
	}
	defer d.close()
	switch {
	case d.problem != nil:
		return d.problem
	case d.server == nil || d.server.pid != d.PID:
		return fmt.Errorf("%s (pid %d) has ended", d.Server, d.PID)
	case d.file == nil:
		return fmt.Errorf("%s is gone", d.Path)
	}
	text := d.new
	if sum(d.file.text) != d.OldSum {
		if text, err = d.again(c, was); err != nil {
			return err
		}
	}
	tested, err := d.try(text)
	if err != nil {
		return fmt.Errorf("%s refuses %s %s: %w; %s is as it was", d.Server, c.Name, c.Value, err, d.Path)
	}
	if err := d.file.replace(text, d.Attr, d.Temp, d.Place, false); err != nil {
		return err
	}
	if !tested {
		if err = d.server.test(); err != nil {
			err = fmt.Errorf("%s refuses %s %s: %w", d.Server, c.Name, c.Value, err)
		}
	}
	if err == nil {
		if err = d.server.reload(); err == nil {
			return nil
		}
	}
	if back := putBack(d); back != nil {
		return fmt.Errorf("%w; and %s could not be put back: %w", err, d.Path, back)
	}
	return fmt.Errorf("%w; %s is as it was", err, d.Path)
}

// again makes the edit in a file that has other bytes than when it was looked at,
// as after another change of the same file: if the server knows them, and what is
// to be set is as it was.
func (d *found) again(c *cause.Change, was change.State) ([]byte, error) {
	if err := d.server.pending(d.file); err != nil {
		return nil, err
	}
	e, err := d.server.kind.edit(string(d.file.text), placeOf(c, c.Line))
	if err != nil || e.was != was.Was {
		return nil, fmt.Errorf("%s was changed by somebody else since it was looked at: nothing was done", d.Path)
	}
	return e.apply(d.file.text), nil
}

// try runs the server's own test with the new content, before the file is
// touched; false where that cannot be done here.
func (d *found) try(text []byte) (tested bool, err error) {
	defer d.file.drop(d.Temp)
	if err := d.file.write(d.Temp, text, d.Attr); err != nil {
		return false, nil // the directory of a file that is a mount may be read-only
	}
	err = d.server.testWith(d.Path, path.Join(path.Dir(d.Path), d.Temp))
	if errors.Is(err, errNoCover) {
		return false, nil
	}
	return true, err
}

// Holds implements change.Doer.
func (files) Holds(c *cause.Change, was change.State) (holds, gone bool, now string, err error) {
	d, err := open(c, was)
	if err != nil {
		return false, false, "", err
	}
	defer d.close()
	switch {
	case d.root == nil:
		return false, true, d.gone + ", and its files with it", nil
	case d.file == nil:
		return false, false, d.Path + " is gone", nil
	case sum(d.file.text) == d.OldSum:
		return false, false, was.Was, nil
	}
	if _, there := d.edit.revert(d.old, d.new, d.file.text); !there {
		if e, err := kinds[d.Server].edit(string(d.file.text), placeOf(c, c.Line)); err == nil && e.was == was.Was {
			return false, false, was.Was, nil
		}
		return false, false, d.Path + " was changed by somebody else", nil
	}
	if d.server != nil && d.server.pending(d.file) != nil {
		return false, false, c.Value + ", not taken over by the server", nil
	}
	return true, false, c.Value, nil
}

// Undo implements change.Doer.
func (files) Undo(c *cause.Change, was change.State) error {
	d, err := open(c, was)
	if err != nil {
		return err
	}
	defer d.close()
	switch {
	case d.root == nil:
		return nil
	case d.file == nil:
		return fmt.Errorf("%s is gone: it was deleted or renamed by somebody else", d.Path)
	}
	return putBack(d)
}

// putBack writes the old bytes and has the server read them, as far as either
// is not so already.
func putBack(d *found) error {
	f, err := d.root.open(d.Path) // what is there now
	if err != nil {
		return err
	}
	defer func() { f.close() }()
	f.drop(d.Temp)
	text, a, withTimes := d.old, d.Attr, true
	switch {
	case sum(f.text) == d.OldSum && f.attr.same(d.Attr):
		text = nil
	case sum(f.text) == d.OldSum || sum(f.text) == d.NewSum || d.Place && torn(f.text, d.old, d.new):
	default:
		// Something else of it was changed too: that stays.
		var there bool
		if text, there = d.edit.revert(d.old, d.new, f.text); !there {
			return fmt.Errorf("%s was changed by somebody else since: it is left so; the line was: %s", d.Path, d.edit.oldLine)
		}
		a, withTimes = f.attr, false
	}
	if text != nil {
		if err := f.replace(text, a, d.Temp, d.Place, withTimes); err != nil {
			return err
		}
		again, err := d.root.open(d.Path)
		if err != nil {
			return err
		}
		f.close()
		f = again
	}
	if d.problem != nil {
		return fmt.Errorf("%s is as it was, and the server could not be told: %w", d.Path, d.problem)
	}
	if d.server == nil {
		return nil // nobody runs with it
	}
	if text == nil && d.server.hasRead(f) {
		return nil
	}
	if err := d.server.test(); err != nil {
		return fmt.Errorf("%s is as it was, and the server's own test refuses it, so it was not told: %w", d.Path, err)
	}
	return d.server.reload()
}

// Commands implements change.Doer.
func (files) Commands(c *cause.Change, was change.State) (do, undo []string) {
	var data kept
	if json.Unmarshal(was.Data, &data) != nil {
		return nil, nil
	}
	old, err := data.Old.unpack()
	k := kinds[data.Server]
	if err != nil || k == nil {
		return nil, nil
	}
	e, err := k.edit(string(old), placeOf(c, c.Line))
	if err != nil {
		return nil, nil
	}
	name := data.Path
	var rest []string
	if s, err := attach(data.Server, data.PID); err == nil && s.start == data.Start {
		name = s.outer(name)
		if s.testArgs != nil {
			rest = append(rest, shellJoin(append(s.enter(), s.testArgs...)))
		}
		reload := fmt.Sprintf("kill -%s %d   # %s master: reload", k.signalName, data.PID, data.Server)
		if s.note != "" {
			reload += "; " + s.note
		}
		rest = append(rest, reload)
	}
	place, from, to := fmt.Sprintf("edit %s:%d: ", name, e.line), e.oldLine, e.newLine
	if from == "" {
		do = append(do, place+"add: "+to)
		undo = append(undo, place+"take away: "+to)
	} else {
		do = append(do, place+from+" → "+to)
		undo = append(undo, place+to+" → "+from)
	}
	return append(do, rest...), append(undo, rest...)
}

// shellJoin quotes the words that a shell would split.
func shellJoin(words []string) string {
	var out []string
	for _, w := range words {
		if strings.ContainsAny(w, " \t\n\"'\\$;&|<>()*?#~`") || w == "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}
