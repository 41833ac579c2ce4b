package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/language"
)

// A directory that others could write to, or that is not one, is refused.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	path := func(name string) string { return filepath.Join(top, name) }
	if err := errors.Join(os.Mkdir(path("real"), 0o700), os.Symlink(path("real"), path("link")), os.WriteFile(path("file"), nil, 0o600),
		os.Mkdir(path("open"), 0o700), os.Chmod(path("open"), 0o750), os.Mkdir(path("shared"), 0o700), os.Chmod(path("shared"), 0o777)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file": "not a directory", "open": "open has mode 0750: other users can look into it: run chmod 700 ",
		"shared/journal": "others may write to ", "file/journal": "not a directory"} {
		_, err := Open(path(name))
		fails(t, err, want)
		if err != nil && !strings.Contains(err.Error(), top) {
			t.Errorf("the path is not told: %v", err)
		}
	}
	j, err := Open(path("link")) // one's own leads where one wants
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	if err := os.Symlink(path("open"), path("openlink")); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path("openlink"))
	fails(t, err, "openlink has mode 0750: other users can look into it: run chmod 700 ")
	if _, err := Existing(path("nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED in part: a directory of somebody else (needs root)")
	}
	if err := os.Chown(path("real"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"real", "link", "real/journal"} {
		_, err := Open(path(name))
		fails(t, err, "belongs to user 65534: somebody else can change it: name another directory with --state DIR")
	}
	if err := errors.Join(os.Chown(path("real"), 0, 0), os.Lchown(path("link"), 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path("link"))
	fails(t, err, "link belongs to user 65534: somebody else can change it")
}

// Files that are not whole or not ours are reported in one line each; the others are put
// back all the same, nothing is lost, and nothing else is changed until somebody has
// said that they have seen to it.
func TestDamagedFiles(t *testing.T) {
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
	good := oldFile(t, e)
	path := func(name string) string { return filepath.Join(h.dir, name) }
	put := func(name string, data []byte) {
		if err := os.WriteFile(path(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	as := func(id string) []byte { return bytes.Replace(good, []byte(`"id": "1"`), []byte(`"id": "`+id+`"`), 1) }
	put("2.json", as("2")[:len(good)-7])
	put("3.json", nil)
	put("4.json", good)
	put("5.json", bytes.Replace(as("5"), []byte(`"kept"`), []byte(`"sold"`), 1))
	put("6.json", bytes.Replace(as("6"), []byte("journal/1"), []byte("journal/9"), 1))
	if err := errors.Join(os.Symlink("1.json", path("7.json")), syscall.Mkfifo(path("8.json"), 0o600), os.Mkdir(path("9.json"), 0o700)); err != nil {
		t.Fatal(err)
	}
	put("10.json", as("10"))
	if err := os.Chmod(path("10.json"), 0o666); err != nil {
		t.Fatal(err)
	}
	put("11.json", []byte(`{"schema":"slowray.journal/1","id":"11","state":"applied"}`))
	put("note.txt", []byte("of somebody"))
	put("-1.json", good)
	put("99999999999999999999.json", good)
	want := map[string]string{"2": "is torn", "3": "is empty", "4": `says that it is entry "1"`, "5": `unknown state "sold"`,
		"6": `schema "slowray.journal/9"`, "7": "is not a regular file", "8": "is not a regular file", "9": "is not a regular file",
		"10": "may be written to by others", "11": "has no changes"}

	check := func(list []Entry) {
		t.Helper()
		for _, e := range list {
			fails(t, errors.New(e.Problem), want[e.ID])
		}
		fails(t, errors.New(Notice(h.dir)), "a change may be in force")
		_, err = h.open().Begin(h.changes, Options{})
		fails(t, err, "2.json is torn")
		fails(t, err, "slowray undo --forget 2")
	}
	check(h.listed(Kept, Damaged, Damaged, Damaged, Damaged, Damaged, Damaged, Damaged, Damaged, Damaged, Damaged)[1:])

	outcomes, err := h.open().Undo()
	if err != nil || len(outcomes) != 11 {
		t.Errorf("undo: %+v, %v", outcomes, err)
	}
	h.are(before)
	for _, o := range outcomes {
		// Of the fifth only the state is not known.
		if ok := o.ID == "1" || o.ID == "5"; ok != (o.Result == ResultUndone) || !ok && !strings.Contains(o.Note, "--forget "+o.ID) {
			t.Errorf("%+v", o)
		}
	}
	if kept, err := os.ReadFile(path("2.damaged")); err != nil || !bytes.Equal(kept, as("2")[:len(good)-7]) {
		t.Errorf("the torn file is not kept: %v", err)
	}
	if _, err := os.ReadFile(path("6.json")); err != nil {
		t.Errorf("the file of another version is taken away: %v", err)
	}
	// What was not put back is still there, and in the way.
	var ids []string
	for _, e := range h.listed(Failed, Failed, Failed, Damaged, Damaged, Damaged, Damaged, Damaged, Failed) {
		ids = append(ids, e.ID)
	}
	_, err = h.open().Begin(h.changes, Options{})
	fails(t, err, "entry 2 (a change of which nothing is known")
	if err := h.open().Forget(ids...); err != nil {
		t.Error(err)
	}
	h.listed()
	if next := h.begin(); next.ID() != "12" {
		t.Errorf("the next entry has ID %s: one that was used", next.ID())
	}
}

// After a reboot what was set in the kernel is gone, and nothing is in the way.
func TestReboot(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Kept, Applied} {
		h := newHost(t, 1)
		l := h.begin()
		if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
			t.Fatal(err)
		}
		j := h.open()
		e, err := j.dir.read(".", "1")
		if err != nil {
			t.Fatal(err)
		}
		e.BootID, e.State = "another", state
		e.Owner, e.Watchdog = Process{PID: 1, Start: 7}, Process{PID: os.Getpid(), Start: 7} // IDs are used again
		if err := j.dir.write(e); err != nil {
			t.Fatal(err)
		}
		if notice := Notice(h.dir); notice != "" {
			t.Errorf("notice: %s", notice)
		}
		if state == Kept {
			if o, err := j.Undo(); err != nil || len(o) != 1 || o[0].Result != ResultGone || o[0].Note != "with the reboot" {
				t.Errorf("undo: %+v, %v", o, err)
			}
		} else {
			h.begin()
		}
		h.are(with) // not touched: the file only stands for a setting of the kernel
		if list, err := j.History(); err != nil || len(list) != 1 || list[0].Changes[0].Result != ResultGone {
			t.Errorf("history: %+v, %v", list, err)
		}
	}
}

// On a full disk nothing begins, and nothing is changed; what is applied when the
// disk gets full is undone all the same.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root to mount a small disk")
	}
	h := newHost(t, 1)
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("journal-test", h.dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("SKIPPED: a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(h.dir, syscall.MNT_DETACH) })
	fill := func() {
		os.WriteFile(filepath.Join(h.dir, "fill"), make([]byte, 1<<20), 0o600) // as much as there is room for
	}
	l := h.begin()
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	fill()
	if err := l.Undo(); err != nil {
		t.Error(err)
	}
	h.are(before)
	fails(t, l.Apply(), "no space left on device: make room, or name another directory with --state DIR")
	h.are(before)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	_, err := h.open().Begin(h.changes, Options{})
	fails(t, err, "no space left on device")
	h.are(before)
	if err := os.Remove(filepath.Join(h.dir, "fill")); err != nil {
		t.Fatal(err)
	}
	if o, err := h.open().Undo(); err != nil || joined(o) != nil {
		t.Errorf("undo: %+v, %v", o, err)
	}
	h.listed()
}

// A file system that cannot be written to is reported with what to do.
func TestReadOnly(t *testing.T) {
	_, err := Open("/proc/sys/journal")
	if err == nil {
		t.Fatal("opened")
	}
	fails(t, advise("/var/lib/x", &os.PathError{Op: "mkdir", Path: "/var/lib/x", Err: syscall.EROFS}),
		"/var/lib/x: read-only file system: name a directory on another file system with --state DIR")
}

// The history is bounded, and the oldest goes first.
func TestHistoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	t.Parallel()
	h := newHost(t, 1)
	j := h.open()
	for range maxHistory + 5 {
		id, err := j.dir.nextID()
		if err != nil {
			t.Fatal(err)
		}
		e := newEntry(id, "boot", h.changes, Options{})
		if err := errors.Join(j.dir.write(e), j.dir.close(id)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := j.History()
	if err != nil || len(list) != maxHistory || list[0].ID != "6" {
		t.Errorf("%d entries, %v", len(list), err)
	}
}

// What is printed keeps to the schema, and cannot steer a terminal.
func TestDocument(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	h.changes[0].Text = "file0\x1b[2J\nof the host"
	l := h.begin()
	if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "2.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := h.open()
	list := NewDocument(h.listed(Kept, Damaged), nil)
	h.set(1, "by hand")
	outcomes, err := j.Undo()
	if err != nil {
		t.Fatal(err)
	}
	closed, err := j.History()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../../schema/undo.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	undone := NewDocument(closed, outcomes)
	for name, d := range map[string]*Document{"list": list, "undone": undone, "empty": NewDocument(nil, nil)} {
		var out bytes.Buffer
		if err := d.JSON(&out); err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(&out)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !undone.Left() || list.Left() {
		t.Error("what was not put back is not told")
	}
	var text strings.Builder
	if err := errors.Join(list.List(&text, 0, nil), undone.Undone(&text, 0, nil), undone.List(&text, 0, nil)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"some-cause", "a test (pid ", "was " + before + ", is " + with, "1  file0\ufffd[2J of the host\n",
		"put back (" + before + ")", "file1: somebody else has changed it meanwhile, it is left as it is: now by hand", "damaged", "2.json is torn", "may be in force: look for it by hand"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Errorf("an escape sequence is printed: %q", &text)
	}
	reader, err := language.New("zh")
	if err != nil {
		t.Fatal(err)
	}
	text.Reset()
	if err := errors.Join(list.List(&text, 0, reader), undone.Undone(&text, 0, reader)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"已保留", "何人", "期间被他人改过", "可能仍生效：请手动查看"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &text)
		}
	}
}
