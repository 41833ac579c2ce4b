package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/shell"
)

// Environment of the processes that tests start.
const (
	envOwner = "JOURNAL_TEST_OWNER" // what the owner is to do
	envDir   = "JOURNAL_TEST_DIR"
	// JSON of the changes that the owner makes; otherwise it changes all files
	envChanges = "JOURNAL_TEST_CHANGES"
	envCrash   = "JOURNAL_TEST_CRASH" // "owner", "guardian" or "both", and the number of the step
)

func TestMain(m *testing.M) {
	change.Register(kindFile, fileDoer{})
	crashAt()
	WatchdogMain()
	if what := os.Getenv(envOwner); what != "" {
		owner(what, os.Getenv(envDir))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// crashAt has this process killed at a step of its work, if it is to be.
func crashAt() {
	role, number, _ := strings.Cut(os.Getenv(envCrash), " ")
	isWatchdog := len(os.Args) > 1 && os.Args[1] == watchdogCommand
	if role == "" || (role == "owner") == isWatchdog {
		return
	}
	left := new(atomic.Int64)
	var n int64
	fmt.Sscan(number, &n)
	left.Store(n)
	parent := os.Getppid()
	step = func(string) {
		if left.Add(-1) != 0 {
			return
		}
		if role == "both" {
			syscall.Kill(parent, syscall.SIGKILL)
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// kindFile is a change of a file's content: two writes, so that it can be half made.
const kindFile cause.ChangeKind = "test-file"

// fileDoer makes such changes. Of the names of a change, "fail" makes Apply fail
// half way, "stuck" makes Undo fail, "bug" makes it panic.
type fileDoer struct{}

func (fileDoer) Prepare(c *cause.Change) (change.State, error) {
	data, err := os.ReadFile(c.Path)
	if err != nil {
		return change.State{}, err
	}
	raw, err := json.Marshal(string(data))
	return change.State{Was: string(data), Data: raw}, err
}

func (fileDoer) Apply(c *cause.Change, _ change.State) error {
	if err := os.WriteFile(c.Path, []byte(c.Value[:len(c.Value)/2]), 0o600); err != nil {
		return err
	}
	switch c.Name {
	case "fail":
		return errors.New("refused")
	case "bug":
		panic("no such thing")
	}
	time.Sleep(3 * time.Millisecond)
	step("half made")
	return os.WriteFile(c.Path, []byte(c.Value), 0o600)
}

func (fileDoer) Holds(c *cause.Change, was change.State) (holds, gone bool, now string, err error) {
	data, err := os.ReadFile(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, true, "the file is not there any more", nil
	}
	switch now = string(data); now {
	case "", c.Value, c.Value[:len(c.Value)/2], was.Was[:len(was.Was)/2]: // half made, half undone
		return true, false, "", err
	}
	return false, false, now, err
}

func (fileDoer) Undo(c *cause.Change, was change.State) error {
	if c.Name == "stuck" {
		return errors.New("stuck")
	}
	var old string
	if err := json.Unmarshal(was.Data, &old); err != nil {
		return err
	}
	if err := os.WriteFile(c.Path, []byte(old[:len(old)/2]), 0o600); err != nil {
		return err
	}
	time.Sleep(3 * time.Millisecond)
	step("half undone")
	return os.WriteFile(c.Path, []byte(old), 0o600)
}

func (fileDoer) Commands(*cause.Change, change.State) (do, undo []shell.Command) { return nil, nil }

const (
	before = "as it was before"
	with   = "changed by the test"
)

// host is a made-up host: some files, and a journal.
type host struct {
	t       *testing.T
	dir     string // of the journal
	files   []string
	changes []cause.Change
}

func newHost(t *testing.T, files int) *host {
	t.Helper()
	top := t.TempDir()
	if err := os.Chmod(top, 0o700); err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: filepath.Join(top, "journal")}
	for i := range files {
		h.files = append(h.files, filepath.Join(top, fmt.Sprintf("file%d", i)))
		h.set(i, before)
	}
	h.changes = changesOf(top, files)
	return h
}

// changesOf are the changes of a made-up host's files.
func changesOf(top string, files int) []cause.Change {
	var list []cause.Change
	for i := range files {
		list = append(list, cause.Change{Kind: kindFile, Text: fmt.Sprintf("file%d", i), Value: with,
			Path: filepath.Join(top, fmt.Sprintf("file%d", i))})
	}
	return list
}

func (h *host) set(i int, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.files[i], []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// are fails unless all files have this text.
func (h *host) are(want string) {
	h.t.Helper()
	for i := range h.files {
		h.is(i, want)
	}
}

func (h *host) is(i int, want string) {
	h.t.Helper()
	if data, err := os.ReadFile(h.files[i]); err != nil || string(data) != want {
		h.t.Errorf("%s is %q (%v), want %q", h.files[i], data, err, want)
	}
}

func (h *host) all(want string) bool {
	for _, name := range h.files {
		if data, err := os.ReadFile(name); err != nil || string(data) != want {
			return false
		}
	}
	return true
}

func (h *host) open() *Journal {
	h.t.Helper()
	j, err := Open(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { j.Close() })
	return j
}

// begin begins a lease of all changes, which is closed with the test.
func (h *host) begin() *Lease {
	h.t.Helper()
	l, err := h.open().Begin(h.changes, Options{Cause: "some-cause", Why: "a test"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { l.Close() })
	return l
}

// listed fails unless the journal has open entries in these states.
func (h *host) listed(want ...State) []Entry {
	h.t.Helper()
	list, err := h.open().List()
	if err != nil {
		h.t.Fatal(err)
	}
	var got []State
	for _, e := range list {
		got = append(got, e.State)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.t.Errorf("open entries: %v, want %v", got, want)
	}
	return list
}

// free waits until nobody has the journal's lock any more.
func (h *host) free() *Journal {
	h.t.Helper()
	j := h.open()
	if !wait(10*time.Second, func() bool {
		locks, err := j.lock("test")
		release(locks)
		return err == nil
	}) {
		h.t.Fatal("the lock is held after ten seconds")
	}
	return j
}

// owner is another process that has a lease. It writes a line for each step.
func owner(what, dir string) {
	j, err := Open(dir)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	top := filepath.Dir(dir)
	files, _ := filepath.Glob(filepath.Join(top, "file*"))
	changes := changesOf(top, len(files))
	if text := os.Getenv(envChanges); text != "" {
		if err := json.Unmarshal([]byte(text), &changes); err != nil {
			fmt.Println("error:", err)
			return
		}
	}
	l, err := j.Begin(changes, Options{Cause: "some-cause", Why: "a test"})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println("watchdog", l.cmd.Process.Pid)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				l.Beat(Health{})
			}
		}
	}()
	switch what {
	case "once": // one block, then the end
		err = errors.Join(l.Apply(), l.Undo(), l.Close())
		fmt.Println("closed:", err)
	case "hold":
		fmt.Println("applied:", l.Apply())
		fmt.Println("ended:", <-l.Ended())
	case "blocks":
		for {
			for _, step := range []func() error{l.Apply, l.Undo} {
				if err := step(); err != nil {
					fmt.Println("error:", err)
					return
				}
				fmt.Println("done")
			}
		}
	}
}

// process is an owner that was started.
type process struct {
	*exec.Cmd
	watchdog int
	out      *bufio.Reader
}

// start starts an owner and waits until its lease has begun. The watchdog is 0
// if it ended before.
func (h *host) start(what, crash string) *process {
	h.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe)}
	changes, err := json.Marshal(h.changes)
	if err != nil {
		h.t.Fatal(err)
	}
	p.Env = append(os.Environ(), envOwner+"="+what, envChanges+"="+string(changes), envDir+"="+h.dir, envCrash+"="+crash)
	p.Stderr = os.Stderr
	pipe, err := p.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	p.out = bufio.NewReader(pipe)
	line, err := p.out.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		h.t.Fatal(err)
	}
	fmt.Sscanf(line, "watchdog %d", &p.watchdog)
	if crash == "" && p.watchdog == 0 {
		h.t.Fatalf("the owner says %q", line)
	}
	return p
}

// says fails unless the next line begins like this.
func (p *process) says(t *testing.T, want string) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, want) {
		t.Errorf("the owner says %q (%v), want %q", line, err, want)
	}
	return line
}

// oldFile is the file of an entry as slowray.journal/1 has it.
func oldFile(t *testing.T, e *Entry) []byte {
	t.Helper()
	old := *e
	old.Schema = oldSchema
	data, err := json.MarshalIndent(&old, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return data
}
