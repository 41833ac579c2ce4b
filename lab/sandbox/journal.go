package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stateDir holds the lock and the journal. It is on a file system that does
// not survive a boot, as the changes do not either.
var stateDir = "/run/slowray-lab"

// Change is one host-wide setting that was changed.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Journal is what has to be taken back when a sandbox ends.
type Journal struct {
	Name    string   `json:"name"` // of its file, which each sandbox has for itself
	PID     int      `json:"pid"`  // of the caller
	Dir     string   `json:"dir,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
	Changes []Change `json:"changes,omitempty"`
	Swaps   []string `json:"swaps,omitempty"` // files that the host swaps to
}

// journals matches the names of all journals.
const journals = "journal*.json"

// newJournal is that of a sandbox with these files.
func newJournal(dir string) Journal {
	return Journal{Name: "journal-" + filepath.Base(dir) + ".json", PID: os.Getpid(), Dir: dir}
}

func (j *Journal) path() string { return filepath.Join(stateDir, filepath.Base(j.Name)) }

// write puts the journal on disk, so that it is there before the change is.
func (j *Journal) write() error {
	data, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	tmp := j.path() + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close(), os.Rename(tmp, j.path()))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if d, err := os.Open(stateDir); err == nil {
		d.Sync()
		d.Close()
	}
	return nil
}

// readJournals gives what killed runs have left to take back.
func readJournals() ([]*Journal, error) {
	paths, err := filepath.Glob(filepath.Join(stateDir, journals))
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var list []*Journal
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // its sandbox has just taken it back
		}
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		j := &Journal{}
		if err := json.Unmarshal(data, j); err != nil {
			return nil, fmt.Errorf("journal: %s: %w", path, err)
		}
		j.Name = filepath.Base(path)
		list = append(list, j)
	}
	return list, nil
}

// setter writes a host-wide setting; reading goes through it too, because
// init reaches the host's settings by open files only.
type setter interface {
	get(path string) (string, error)
	set(path, value string) error
}

// undo takes back everything in the journal and then removes the journal. It
// may run any number of times, and in two processes at once. A setting that
// no longer has the value the lab gave it was changed by someone else since,
// and is left alone.
func (j *Journal) undo(s setter) error {
	var errs []error
	for i := len(j.Changes) - 1; i >= 0; i-- {
		c := j.Changes[i]
		now, err := s.get(c.Path)
		if err == nil && sameSetting(now, c.New) {
			err = s.set(c.Path, c.Old)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", c.Path, err))
		}
	}
	for _, file := range j.Swaps {
		errs = append(errs, swapOff(file))
	}
	for _, dir := range j.Cgroups {
		errs = append(errs, removeCgroup(dir))
	}
	if j.Dir != "" && strings.Contains(filepath.Base(j.Dir), dirPrefix) {
		errs = append(errs, os.RemoveAll(j.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.Remove(j.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// sameSetting compares settings as the kernel does: it gives those of several numbers
// back with tabs between them (proc_doulongvec_minmax, kernel/sysctl.c).
func sameSetting(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }

// files is the setter of a process that lives in the host's network namespace.
type files struct{}

func (files) get(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}

func (files) set(path, value string) error { return os.WriteFile(path, []byte(value), 0) }

// Lock is held by the one run of the lab that is going on. Init inherits it,
// so it is free only when both the run and its sandbox are gone.
type Lock struct{ file *os.File }

// Acquire waits for the lock and then repairs what a killed run left. It calls
// say once if it has to wait.
func Acquire(ctx context.Context, say func(string)) (*Lock, error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	for said := false; ; said = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lab: lock: %w", err)
		}
		if !said {
			holder, _ := os.ReadFile(f.Name())
			say(fmt.Sprintf("another lab run (pid %s) is going on; waiting for it to end", strings.TrimSpace(string(holder))))
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, errors.New("lab: interrupted while waiting for another lab run")
		case <-time.After(200 * time.Millisecond):
		}
	}
	f.Truncate(0)
	f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	l := &Lock{file: f}
	if err := l.repair(); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

func (l *Lock) repair() error {
	list, err := readJournals()
	for _, j := range list {
		err = errors.Join(err, j.undo(files{}))
	}
	return err
}

// Release gives the lock back.
func (l *Lock) Release() error { return l.file.Close() }

// Repair takes back what a killed run left. It waits for a run that is going on.
func Repair(ctx context.Context, say func(string)) error {
	l, err := Acquire(ctx, say)
	if err != nil {
		return err
	}
	return l.Release()
}
