package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	change.Register(cause.ChangeConfig, files{})
	change.Register(cause.ChangeSetting, settings{})

}

// files is the Doer of cause.ChangeConfig.
type files struct{}

// kept is the State's data of a changed file: all that is needed to put it, and
// the server, back. Whose file it is only says what is put back, and never gives a
// right: it is done as the user whose it is then, if that is the same one.
type kept struct {
	Server string `json:"server"`
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`  // of the master, in ticks since the boot
	User   int    `json:"user"`   // that it runs as
	Shared bool   `json:"shared"` // the file is seen from slowray's own root directory too, at the same path
	Main   string `json:"main"`   // its main file
	safefile.Spot
	Boot   string        `json:"boot,omitempty"`  // of the kernel, in which Spot.Dir means something
	Line   int           `json:"line"`            // where the change begins
	Old    packed        `json:"old"`             // the file as it was
	OldSum string        `json:"old_sum"`         // SHA-256 of it
	NewSum string        `json:"new_sum"`         // and of what it is changed to
	Attr   safefile.Attr `json:"attr"`            // of which only the times are put back: nothing else is changed
	Place  bool          `json:"place,omitempty"` // written in place, because it cannot be renamed over
	Temp   string        `json:"temp"`            // name of the temporary file in the same directory
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
	tree, err := s.openTree()
	if err != nil {
		return change.State{}, err
	}
	defer tree.Close()
	f, e, err := s.find(tree, c)
	if err != nil {
		return change.State{}, err
	}
	// A file that only the server's mounts show, or that is a mount, is reached there.
	shared := s.shared || !f.InPlace && seenFromHost(s.rootDir, f.spot.Path)
	if shared && !s.shared {
		own, err := safefile.OpenTree("/")
		if err != nil {
			return change.State{}, err
		}
		defer own.Close()
		if f, err = s.openFile(own, f.spot.Path); err != nil {
			return change.State{}, err
		}
	}
	if err := f.writable(); err != nil {
		return change.State{}, err
	}
	if err := s.kind.allowed(c, s, e); err != nil {
		return change.State{}, err
	}
	if err := s.test(); errors.Is(err, errNotTested) {
		return change.State{}, err
	} else if err != nil {
		return change.State{}, fmt.Errorf("%s: the configuration as it stands is refused by the server's own test: %w", c.Server, err)
	}
	data := kept{Server: c.Server, PID: c.PID, Start: s.start, User: s.uid, Shared: shared, Main: s.files[0], Spot: f.spot, Boot: change.BootID(),
		Line: e.line, Old: pack(f.Text), OldSum: sum(f.Text), NewSum: sum(e.apply(f.Text)), Attr: f.Attr, Place: f.InPlace, Temp: tempName()}
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
	tree     *safefile.Tree // nil: it is gone with the server
	file     *file          // nil: it is gone
	server   *server
	gone     string // why there is no server any more
	problem  error  // why the server, which runs, cannot be known
}

func (d *found) close() {
	if d.tree != nil {
		d.tree.Close()
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
	if d.Boot != change.BootID() {
		d.Dir = safefile.Inode{}
	}
	d.findServer()
	switch {
	case d.Shared:
		d.tree, err = safefile.OpenTree("/")
	case d.gone == "":
		d.tree, err = (&server{pid: d.PID, start: d.Start, rootDir: rootOf(d.PID)}).openTree()
	default:
		return d, nil
	}
	if err == nil {
		d.file, err = readFile(d.tree, d.Spot)
	}
	if err != nil && !errors.Is(err, errNoFile) {
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
	if next := successor(d.Server, d.Main, d.User); next != nil {
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
	if sum(d.file.Text) != d.OldSum {
		if text, err = d.again(c, was); err != nil {
			return err
		}
	}
	tested, err := d.try(text)
	if errors.Is(err, errNotTested) || errors.Is(err, safefile.ErrUnsafe) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s refuses %s %s: %w; %s is as it was", d.Server, c.Name, c.Value, err, d.Path)
	}
	if err := d.write(d.file, text, false); err != nil {
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
	if err := d.server.pending(d.Path, d.file.ChangedNS()); err != nil {
		return nil, err
	}
	e, err := d.server.kind.edit(string(d.file.Text), placeOf(c, c.Line))
	if err != nil || e.was != was.Was {
		return nil, fmt.Errorf("%s was changed by somebody else since it was looked at: nothing was done", d.Path)
	}
	return e.apply(d.file.Text), nil
}

// try runs the server's own test with the new content, before the file is
// touched; false where that cannot be done here.
func (d *found) try(text []byte) (tested bool, err error) {
	if err := d.tree.Sibling(d.Spot, d.file.File, safefile.Edit{Text: text, Temp: d.Temp}); err != nil {
		return false, nil // the directory of a file that is a mount may be read-only
	}
	defer func() {
		if left := d.tree.Drop(d.Spot, d.Temp); err == nil {
			err = left
		}
	}()
	err = d.server.testWith(d.Path, path.Join(path.Dir(d.Path), d.Temp))
	if errors.Is(err, errNoCover) {
		return false, nil
	}
	return true, err
}

// Holds implements change.Doer.
func (files) Holds(c *cause.Change, was change.State) (holds, gone bool, now string, err error) {
	d, err := open(c, was)
	if errors.Is(err, safefile.ErrUnsafe) {
		return false, false, err.Error(), nil
	}
	if err != nil {
		return false, false, "", err
	}
	defer d.close()
	switch {
	case d.tree == nil:
		return false, true, d.gone + ", and its files with it", nil
	case d.file == nil:
		return false, false, d.Path + " is gone", nil
	case sum(d.file.Text) == d.OldSum:
		return false, false, was.Was, nil
	}
	if _, there := d.edit.revert(d.old, d.new, d.file.Text); !there {
		if e, err := kinds[d.Server].edit(string(d.file.Text), placeOf(c, c.Line)); err == nil && e.was == was.Was {
			return false, false, was.Was, nil
		}
		return false, false, d.Path + " was changed by somebody else", nil
	}
	if d.server != nil && d.server.pending(d.Path, d.file.ChangedNS()) != nil {
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
	case d.tree == nil:
		return nil
	case d.file == nil:
		return fmt.Errorf("%s is gone: it was deleted or renamed by somebody else", d.Path)
	}
	return putBack(d)
}

// putBack writes the old bytes and has the server read them, as far as either
// is not so already.
func putBack(d *found) error {
	if err := d.tree.Drop(d.Spot, d.Temp); err != nil {
		return err
	}
	f, err := readFile(d.tree, d.Spot) // what is there now
	if err != nil {
		return err
	}
	text, withTimes := d.old, true
	switch {
	case sum(f.Text) == d.OldSum && f.MTimeNS == d.Attr.MTimeNS:
		text = nil
	case sum(f.Text) == d.OldSum || sum(f.Text) == d.NewSum || d.Place && torn(f.Text, d.old, d.new):
	default:
		// Something else of it was changed too: that stays.
		var there bool
		if text, there = d.edit.revert(d.old, d.new, f.Text); !there {
			return fmt.Errorf("%s was changed by somebody else since: it is left so; the line was: %s", d.Path, d.edit.oldLine)
		}
		withTimes = false
	}
	if text != nil {
		if err := d.write(f, text, withTimes); err != nil {
			return err
		}
		if f, err = readFile(d.tree, d.Spot); err != nil {
			return err
		}
	}
	if d.problem != nil {
		return fmt.Errorf("%s is as it was, and the server could not be identified: %w", d.Path, d.problem)
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

// write gives the file another content. withTimes puts the times back too.
func (d *found) write(f *file, text []byte, withTimes bool) error {
	return d.tree.Write(d.Spot, f.File, safefile.Edit{Text: text, Temp: d.Temp, InPlace: d.Place || f.InPlace,
		Times: withTimes, ATimeNS: d.Attr.ATimeNS, MTimeNS: d.Attr.MTimeNS})
}

// Commands implements change.Doer.
func (files) Commands(c *cause.Change, was change.State) (do, undo []shell.Command) {
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
	var rest []shell.Command
	if s, err := attach(data.Server, data.PID); err == nil && s.start == data.Start {
		name = s.outer(name)
		if s.testArgs != nil {
			rest = append(rest, s.testLine())
		}
		reload := shell.Line("kill -%s %s   # %s master: reload", k.signalName, data.PID, data.Server)
		if s.note != "" {
			reload = reload.Note("%s", shell.Text(s.note))
		}
		rest = append(rest, reload)
	}
	place, from, to := shell.Line("# edit %s:%s:", name, e.line), shell.Text(e.oldLine), shell.Text(e.newLine)
	if from == "" {
		do = append(do, place.Note("add %s", to))
		undo = append(undo, place.Note("remove %s", to))
	} else {
		do = append(do, place.Note("%s → %s", from, to))
		undo = append(undo, place.Note("%s → %s", to, from))
	}
	return append(do, rest...), append(undo, rest...)
}
