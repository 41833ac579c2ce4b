package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/shell"
	"golang.org/x/sys/unix"
)

// kind is what differs between servers.
type kind struct {
	// read finds out about the server with that master: its files, its test.
	read func(*server) error
	// edit sets a directive in the text of one file.
	edit func(text string, p place) (edit, error)
	// allowed says why a reload would not take the change over.
	allowed func(c *cause.Change, s *server, e edit) error
	// generation tells which workers run, and since when the configuration is in
	// force.
	generation func(*server) (generation, error)
	// inForce says that a reload that began at the generation before is complete;
	// s was read after the file was written.
	inForce func(s *server, before, now generation) bool

	signal     unix.Signal
	signalName string
}

var kinds = map[string]*kind{"nginx": &nginxKind, "php-fpm": &fpmKind, "apache": &apacheKind, "haproxy": &haproxyKind, "uwsgi": &uwsgiKind}

// server is a running server as it is now.
type server struct {
	name    string
	kind    *kind
	pid     int
	start   uint64 // ticks since the boot
	uid     int    // the user that it runs as
	rootDir string // its root directory as slowray reaches it: "/" or "/proc/PID/root"
	shared  bool   // that is slowray's own
	reader  any    // the reader's instance

	files    []string // of its configuration, in its root; the main one first
	testArgs []string // the command line of its own test; nil: it has none
	note     string   // what a reload does besides, for people
	before   generation
}

// generation is one set of workers.
type generation struct {
	SinceNS int64          // Unix; the configuration was read at about this moment, or shortly before
	Mark    string         // another one after every reload, where the workers do not tell
	Workers map[int]uint64 // pid → start in ticks
}

// startTime is how long a server is given to have its workers.
const startTime = time.Second

// attach looks at the server with that master. Errors are one line.
func attach(name string, pid int) (*server, error) {
	k, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("the configuration of %s cannot be changed while it runs: it reads it only at its start, or slowray does not know how it reloads", name)
	}
	s := &server{name: name, kind: k, pid: pid}
	var err error
	if s.start, err = startTicks(pid); err != nil {
		return nil, fmt.Errorf("%s (pid %d) does not run (any more)", name, pid)
	}
	if s.uid, err = userOf(pid); err != nil {
		return nil, fmt.Errorf("%s (pid %d): %w", name, pid, err)
	}
	s.rootDir = rootOf(pid)
	if sameFile(s.rootDir+"/", "/") && sameFile(fmt.Sprintf("/proc/%d/ns/mnt", pid), "/proc/self/ns/mnt") {
		s.rootDir, s.shared = "/", true
	}
	if err := k.read(s); err != nil {
		return nil, err
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("the configuration of %s (pid %d) could not be read", name, pid)
	}
	// A server that has only just started has none yet that say what they are.
	for end := time.Now().Add(startTime); ; time.Sleep(pollEvery) {
		if s.before, err = k.generation(s); err == nil {
			return s, nil
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
}

func rootOf(pid int) string { return fmt.Sprintf("/proc/%d/root", pid) }

// process is the master, and no other that has its number later.
func (s *server) process() change.Process { return change.Process{PID: s.pid, Start: s.start} }

// openTree opens its root directory.
func (s *server) openTree() (*safefile.Tree, error) {
	t, err := safefile.OpenTree(s.rootDir)
	if err != nil || s.shared {
		return t, err
	}
	if err := s.process().Check(); err != nil { // it had ended before that was opened
		t.Close()
		return nil, fmt.Errorf("process %d: %w", s.pid, err)
	}
	return t, nil
}

// successor finds the server that was started again by the same user with the same
// main file in slowray's own mounts; nil where there is none, or several.
func successor(name, main string, user int) *server {
	var found *server
	all := processes(0)
	names := map[int]string{}
	for _, p := range all {
		names[p.PID] = p.Comm
	}
	for _, p := range all {
		if names[p.PPID] == p.Comm {
			continue // a worker
		}
		s, err := attach(name, p.PID)
		if err != nil || !s.shared && !seenFromHost(s.rootDir, s.files[0]) || s.files[0] != main || s.uid != user {
			continue
		}
		if found != nil {
			return nil
		}
		found = s
	}
	return found
}

// seenFromHost says that a file of a server with mounts of its own is the one at
// the same path of slowray's, as with a unit's PrivateTmp= or ProtectSystem=, which
// may have made it read-only there.
func seenFromHost(rootDir, name string) bool {
	dir := path.Dir(name)
	return rootDir == "/" || sameFile(path.Join(rootDir, dir), dir) && sameFile(path.Join(rootDir, name), name)
}

// inner is a change's path in the server's root: changes name files as slowray
// reaches them.
func (s *server) inner(name string) string {
	if rest, ok := strings.CutPrefix(name, fmt.Sprintf("/proc/%d/root/", s.pid)); ok {
		return "/" + rest
	}
	return name
}

// find opens the file that a change is about, and makes the edit. A section that
// the named file does not have is looked for in the others.
func (s *server) find(t *safefile.Tree, c *cause.Change) (*file, edit, error) {
	names := []string{s.inner(c.Path)}
	if c.Path == "" {
		names[0] = s.files[0]
	}
	if c.Line == 0 && c.Section != "" {
		for _, n := range s.files {
			if n != names[0] {
				names = append(names, n)
			}
		}
	}
	if !s.reads(names[0]) {
		return nil, edit{}, fmt.Errorf("%s is not a file that %s (pid %d) reads", names[0], s.name, s.pid)
	}
	var first error
	for _, n := range names {
		f, err := s.openFile(t, n)
		if errors.Is(err, errNoFile) {
			err = fmt.Errorf("%s: %w", n, err)
		}
		if err != nil {
			return nil, edit{}, err
		}
		e, err := s.kind.edit(string(f.Text), placeOf(c, c.Line))
		if err == nil {
			return f, e, nil
		}
		if errors.Is(err, errSame) {
			return nil, edit{}, fmt.Errorf("%s: %s is %s already", n, c.Name, c.Value)
		}
		if first == nil {
			first = fmt.Errorf("%s: %w", n, err)
		}
		if !errors.Is(err, errNoSection) {
			return nil, edit{}, fmt.Errorf("%s: %w", n, err)
		}
	}
	return nil, edit{}, first
}

// outer is a path in the server's root as slowray reaches it.
func (s *server) outer(name string) string {
	if s.shared {
		return name
	}
	return s.rootDir + name
}

// reading is the budget of one look at a server's files.
func reading() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: 2 * time.Second})
}

// tooLarge says that the configuration is over that budget: nothing is changed in one
// of which only a part is known.
func (s *server) tooLarge() error {
	return fmt.Errorf("the configuration of %s (pid %d) is too large to be read to its end", s.name, s.pid)
}

func (s *server) reads(name string) bool {
	r := rootfs.At(s.rootDir, reading())
	target := r.Target(name)
	return slices.ContainsFunc(s.files, func(f string) bool { return f == name || r.Target(f) == target })
}

// settled is how much later than the start of its workers a file may have been
// changed: starting times are right to 10 ms.
const settled = 20 * time.Millisecond

// stale says that a file was changed and the server not told: a reload would
// take over more than one change.
func (s *server) stale() error {
	t, err := s.openTree()
	if err != nil {
		return err
	}
	defer t.Close()
	for _, n := range s.files {
		changed, err := t.ChangedNS(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // an include that is not there
		}
		if err == nil {
			err = s.pending(n, changed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pending says that the server has not read a file since it was changed.
func (s *server) pending(name string, changedNS int64) error {
	if changedNS <= s.before.SinceNS+settled.Nanoseconds() {
		return nil
	}
	return fmt.Errorf("%s was changed at %s, after %s (pid %d) had read it: reload or put it back first, a reload now would change other things too",
		name, time.Unix(0, changedNS).Format(time.DateTime), s.name, s.pid)
}

// hasRead says that the server has surely read f since it was changed. One that was
// changed within moments of the reading may not be what was read.
func (s *server) hasRead(f *file) bool {
	return f.ChangedNS() < s.before.SinceNS-settled.Nanoseconds()
}

// test runs the server's own test of its configuration.
func (s *server) test() error { return s.testWith("", "") }

// testWith runs it with another file in the place of one; both are paths in the
// server's root. errNoCover: it was not run, because that cannot be done.
func (s *server) testWith(name, instead string) error {
	if s.testArgs == nil {
		return nil
	}
	h, err := homeOf(s.process())
	if err == nil {
		defer h.close()
		err = h.safe(s.files)
	}
	if errors.Is(err, errHeldBack) {
		err = fmt.Errorf("%w: edit the file by hand, and reload the server by its service manager, or inside its container (docker exec)", err)
	}
	if err != nil {
		return fmt.Errorf("%w of %s (pid %d): %w", errNotTested, s.name, s.pid, err)
	}
	h.cover = [2]string{name, instead}
	text, err := h.run(s.testArgs, testTime)
	if errors.Is(err, errNoName) {
		return fmt.Errorf("%w of %s (pid %d): %w", errNotTested, s.name, s.pid, err)
	}
	if err == nil || errors.Is(err, errNoCover) {
		return err
	}
	if line := worst(text); line != "" {
		return errors.New(line)
	}
	return fmt.Errorf("%s: %w", strings.Join(s.testArgs, " "), err)
}

// worst is the line of a test's output that says what is wrong.
func worst(text string) string {
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	for i, l := range lines {
		for _, mark := range []string{"[emerg]", "[ALERT]", "ALERT:", "ERROR:", "Syntax error", "AH0"} {
			if !strings.Contains(l, mark) {
				continue
			}
			if strings.HasSuffix(l, ":") && i+1 < len(lines) {
				l += " " + lines[i+1]
			}
			return l[:min(len(l), maxMessage)]
		}
	}
	if len(lines) == 0 {
		return ""
	}
	l := lines[len(lines)-1]
	return l[:min(len(l), maxMessage)]
}

// maxMessage is how much of a line of a test's output is reported, in bytes.
const maxMessage = 400

// reload tells the master, and waits until the configuration that is on disk now
// is in force.
func (s *server) reload() error {
	now, err := attach(s.name, s.pid)
	if err == nil && now.start != s.start {
		err = fmt.Errorf("%s (pid %d) has ended", s.name, s.pid)
	}
	if err != nil {
		return err
	}
	// One that has just executed itself has its workers before it hears signals again:
	// what comes earlier is lost, or ends it.
	end := time.Now().Add(reloadTime)
	for !hears(s.pid, s.kind.signal) {
		if time.Now().After(end) {
			return fmt.Errorf("%s (pid %d) does not listen to SIG%s, by which it is asked to reload", s.name, s.pid, s.kind.signalName)
		}
		time.Sleep(pollEvery)
	}
	if err := s.process().Signal(s.kind.signal); err != nil {
		return fmt.Errorf("tell %s (pid %d) to reload: %w", s.name, s.pid, err)
	}
	for ; time.Now().Before(end); time.Sleep(pollEvery) {
		if t, err := startTicks(s.pid); err != nil || t != s.start {
			return fmt.Errorf("%s (pid %d) ended when it was asked to reload", s.name, s.pid)
		}
		g, err := s.kind.generation(now)
		if err == nil && s.kind.inForce(now, now.before, g) {
			return nil
		}
	}
	return fmt.Errorf("%s (pid %d) has not taken the new configuration over within %s", s.name, s.pid, reloadTime)
}

// testLine is how a person has the server's own test run. What is pasted may run as root
// of the host, so it is never the program of another mount namespace, nor root with the
// files of another user, which may name modules to be loaded.
func (s *server) testLine() shell.Command {
	test := shell.Args(s.testArgs...)
	id, _, err := identityOf(fmt.Sprintf("/proc/%d", s.pid))
	switch {
	case !s.shared || err != nil:
		return shell.Line("# check where pid %s lives (docker exec, kubectl exec, machinectl shell):", s.pid).Note("%s", shell.Text(test.String()))
	case id.uid != 0:
		return shell.Line("setpriv --reuid=%s --regid=%s --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all", id.uid, id.gid).Then(test)
	}
	return test
}

// binary is the name of the server's executable.
func (s *server) binary() string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.pid))
	if err != nil {
		return s.name
	}
	return path.Base(strings.TrimSuffix(name, " (deleted)"))
}

// replaced says that the executable is not the one on disk any more: a server
// that reloads by executing itself would start another version.
func (s *server) replaced() error {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.pid))
	if err == nil && strings.HasSuffix(name, " (deleted)") {
		return fmt.Errorf("the executable of %s (pid %d) was replaced since it was started: a reload would start another version", s.name, s.pid)
	}
	return nil
}

// processOf finds a process and its children.
func processOf(pid int) []observe.Process {
	var out []observe.Process
	for _, p := range processes(pid) {
		if p.PID == pid || p.PPID == pid {
			out = append(out, p)
		}
	}
	return out
}
