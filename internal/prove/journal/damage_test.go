package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// damage is what becomes of a file: by a power cut, by a disk, by somebody.
var damage = []struct {
	name string
	do   func(data []byte) []byte // nil: the file is removed
	all  bool                     // nothing can be known of the file
}{
	{"lost its last 7 bytes", func(b []byte) []byte { return b[:len(b)-7] }, false},
	{"lost its last byte", func(b []byte) []byte { return b[:len(b)-1] }, false},
	{"ends in zeros", func(b []byte) []byte { clear(b[len(b)-100:]); return b }, false},
	{"has a bit turned in the end", func(b []byte) []byte { b[len(b)-40] ^= 4; return b }, false},
	{"has a digit turned in its checksum", func(b []byte) []byte { b[bytes.LastIndex(b, []byte(`"sha256":"`))+12] ^= 1; return b }, false},
	{"has something behind it", func(b []byte) []byte { return append(b, "of another file"...) }, false},
	{"is empty", func([]byte) []byte { return []byte{} }, true},
	{"has only zeros", func(b []byte) []byte { clear(b); return b }, true},
	{"is another file", func(b []byte) []byte { return bytes.Repeat([]byte("7"), len(b)) }, true},
	{"is gone", nil, true},
}

// hurt damages a file of the journal.
func (h *host) hurt(name string, do func([]byte) []byte) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
	case do == nil:
		err = os.Remove(path)
	default:
		err = os.WriteFile(path, do(data), 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// left is a journal with changes that a run left, which was killed with its
// watchdog, or which kept them.
func left(t *testing.T, kept bool) *host {
	t.Helper()
	h := newHost(t, 2)
	if kept {
		l := h.begin()
		if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
			t.Fatal(err)
		}
	} else {
		p := h.start("hold", "")
		p.says(t, "applied: <nil>")
		syscall.Kill(p.watchdog, syscall.SIGSTOP) // it must not be quicker
		p.Process.Kill()
		syscall.Kill(p.watchdog, syscall.SIGKILL)
		p.Wait()
		h.free()
	}
	h.are(with)
	return h
}

// A change whose entry lost one of its two files, in whatever way, is reported with
// all that was known of it, keeps others from being made, and is put back.
func TestDamagedFile(t *testing.T) {
	for _, d := range damage {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept %v", d.name, kept), func(t *testing.T) {
				t.Parallel()
				h := left(t, kept)
				h.hurt("1.json", d.do)
				list := h.listed(Damaged)
				if len(list) == 0 {
					return
				}
				var text strings.Builder
				if err := NewDocument(list, nil).List(&text, 0, nil); err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{"damaged", "some-cause", "1.json is", "its backup is whole", "1  file0\n", "1  file1\n",
					"may be in force: was " + before + ", is " + with} {
					if !strings.Contains(strings.ReplaceAll(text.String(), "has only zeros", "is zero"), want) {
						t.Errorf("%q is not in:\n%s", want, &text)
					}
				}
				fails(t, errors.New(Notice(h.dir)), "a change may be in force (file0; file1)")
				_, err := h.open().Begin(h.changes, Options{})
				fails(t, err, "put it back first: slowray undo 1")
				h.are(with)
				if o, err := h.open().Undo(); err != nil || joined(o) != nil || len(o) != 2 {
					t.Errorf("undo: %+v, %v", o, err)
				}
				h.are(before)
				h.listed()
				if err := h.begin().Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Without its backup an entry is what it was.
func TestDamagedBackup(t *testing.T) {
	for _, d := range damage {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			h := left(t, false)
			h.hurt("1.bak", d.do)
			h.listed(Applied)
			_, err := h.open().Begin(h.changes, Options{})
			fails(t, err, "file0; file1): put them back first: slowray undo")
			if o, err := h.open().Undo(); err != nil || joined(o) != nil || len(o) != 2 {
				t.Errorf("undo: %+v, %v", o, err)
			}
			h.are(before)
			h.listed()
		})
	}
}

// With both files damaged, what is whole of either is enough; where nothing is, it
// is reported, and stays in the way until somebody says that they have seen to it.
func TestBothDamaged(t *testing.T) {
	for _, d := range damage {
		if d.do == nil {
			continue // then nothing tells that there ever was an entry
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			h := left(t, rand.IntN(2) == 0)
			h.hurt("1.json", d.do)
			h.hurt("1.bak", d.do)
			list := h.listed(Damaged)
			if len(list) == 0 {
				return
			}
			_, err := h.open().Begin(h.changes, Options{})
			fails(t, err, "entry 1 (")
			fails(t, err, "may be in force")
			o, err := h.open().Undo()
			if err != nil {
				t.Fatal(err)
			}
			if !d.all {
				if joined(o) != nil || len(o) != 2 {
					t.Errorf("undo: %+v", o)
				}
				h.are(before)
				h.listed()
				return
			}
			if len(o) != 1 || o[0].Result != ResultFailed || !strings.Contains(o[0].Note, "slowray undo --forget 1") {
				t.Errorf("undo: %+v", o)
			}
			h.are(with)
			h.listed(Failed)
			fails(t, errors.New(Notice(h.dir)), "still there (a change of which nothing is known")
			_, err = h.open().Begin(h.changes, Options{})
			fails(t, err, "slowray undo --forget 1")
			if err := h.open().Forget("1"); err != nil {
				t.Error(err)
			}
			h.listed()
			for _, name := range []string{"1.damaged", "1.bak.damaged"} {
				if _, err := os.Stat(filepath.Join(h.dir, name)); err != nil {
					t.Errorf("what is left of it is not kept: %v", err)
				}
			}
		})
	}
}

// Of several changes those whose record is whole in either file are put back, and
// the others are reported.
func TestRecordsLost(t *testing.T) {
	t.Parallel()
	h := left(t, true)
	turn := func(line int) func([]byte) []byte {
		return func(b []byte) []byte {
			lines := bytes.SplitAfter(b, []byte("\n"))
			lines[line][len(lines[line])/2] ^= 1
			return bytes.Join(lines, nil)
		}
	}
	h.hurt("1.json", turn(1))
	h.hurt("1.bak", turn(1))
	o, err := h.open().Undo()
	if err != nil || len(o) != 2 || o[0].Change != "file1" || o[0].Result != ResultUndone || o[1].Result != ResultFailed {
		t.Errorf("undo: %+v, %v", o, err)
	}
	h.is(0, with)
	h.is(1, before)
	h.listed(Failed)

	other := left(t, true)
	other.hurt("1.json", turn(1))
	other.hurt("1.bak", turn(2))
	if o, err := other.open().Undo(); err != nil || joined(o) != nil || len(o) != 2 {
		t.Errorf("undo: %+v, %v", o, err)
	}
	other.are(before)
	other.listed()
}

// Killed with -9 at each step, and by a power cut that takes the tail of the file,
// of its backup, or of both, a run leaves enough to put everything back; what was
// not changed is not said to be.
func TestKilledAndTailLost(t *testing.T) {
	tail := damage[0].do
	for i, hurt := range [][]string{{"1.json"}, {"1.bak"}, {"1.json", "1.bak"}} {
		t.Run(strings.Join(hurt, " and "), func(t *testing.T) {
			t.Parallel()
			reported, stride := 0, 1
			if testing.Short() {
				stride = 3 // which meets every step of one of the three
			}
			n := 1 + i%stride
			for ; n < 200; n += stride {
				h := newHost(t, 1)
				p := h.start("once", fmt.Sprintf("both %d", n))
				rest := new(strings.Builder)
				p.out.WriteTo(rest)
				p.Wait()
				j := h.free()
				for _, name := range hurt {
					if _, err := os.Stat(filepath.Join(h.dir, name)); err == nil {
						h.hurt(name, tail)
					}
				}
				changed := !h.all(before)
				list, err := j.List()
				if err != nil || changed && len(list) == 0 {
					t.Errorf("step %d: something is changed, and the list is %+v (%v)", n, list, err)
				}
				if changed {
					reported++
					_, err := j.Begin(h.changes, Options{})
					fails(t, err, "slowray undo")
				}
				outcomes, err := j.Undo()
				if err != nil || joined(outcomes) != nil {
					t.Errorf("step %d: %v, %v", n, err, joined(outcomes))
				}
				h.are(before)
				h.listed()
				if t.Failed() {
					t.Fatalf("step %d; the owner said %q", n, rest)
				}
				if strings.Contains(rest.String(), "closed: <nil>") {
					break
				}
			}
			if n <= 30 || n == 200 || reported < 5 {
				t.Errorf("%d steps, %d with something changed: this test tests nothing", n, reported)
			}
			t.Logf("%d steps, of %d one was tried, %d with something changed", n-1, stride, reported)
		})
	}
}

// Files of versions without a second copy are read and put back.
func TestOldFile(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	l := h.begin()
	if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
		t.Fatal(err)
	}
	e, err := h.open().dir.read(".", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(h.dir, "1.json"), oldFile(t, e), 0o600), os.Remove(filepath.Join(h.dir, "1.bak"))); err != nil {
		t.Fatal(err)
	}
	if list := h.listed(Kept); len(list) == 1 && (list[0].Cause != "some-cause" || list[0].Changes[0].Change.Text != "file0" || list[0].Created.IsZero()) {
		t.Errorf("%+v", list[0])
	}
	h.begin().Close() // what was kept is not in the way
	if o, err := h.open().Undo(); err != nil || joined(o) != nil || len(o) != 1 {
		t.Errorf("undo: %+v, %v", o, err)
	}
	h.are(before)
	h.listed()
}

// What is whole of a file is what was written, whatever else is in it.
func FuzzParse(f *testing.F) {
	e := &Entry{ID: "1", Generation: 3, State: Applying, BootID: "x", Events: []Event{}, Changes: []Item{{Made: MadeMaybe}, {Made: MadeNo}}}
	e.Changes[0].Change.Text, e.Changes[1].Change.Text = "the first", "the second"
	good, err := encode(e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-7])
	f.Add(good[:len(good)/2])
	f.Add(append(bytes.Clone(good), good...))
	f.Add([]byte(`{"schema":"slowray.journal/1","id":"1","state":"kept","changes":[{"made":"yes"}]}`))
	f.Add([]byte(`{"bytes":4,"sha256":"","record":null}` + "\n"))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := parse("1", data)
		e := s.entry("1")
		if e.ID != "1" || len(e.Changes) == 0 || s.whole() == (e.State == Damaged) || !s.whole() && e.Problem == "" || strings.Contains(e.Problem, "\n") {
			t.Fatalf("%+v", e)
		}
		if !s.whole() || s.end == nil {
			return
		}
		again, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if s := parse("1", again); !s.whole() {
			t.Fatalf("%s: %s", s.damage, again)
		}
	})
}
