package change

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/host"
)

// Bounds of what is looked at.
const (
	maxStats   = 600 // files of all services together
	maxInDir   = 60  // entries of a directory
	maxBeside  = 8   // files that a command line names
	maxService = 32  // services
)

// hostFiles are what every program that looks up a name, a user or a limit
// depends on, and what the host does at fixed times.
var hostFiles = []string{
	"/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/sysctl.conf", "/etc/sysctl.d/", "/etc/security/limits.conf",
	"/etc/security/limits.d/", "/etc/crontab", "/etc/cron.d/", "/etc/fstab", "/etc/nftables.conf", "/etc/iptables/", "/etc/ld.so.preload", "/etc/environment", "/etc/localtime",
}

// looker looks at times of files, as many as it may.
type looker struct {
	fs    host.FS
	b     *budget.Budget // of the service that is looked at
	since time.Time
	left  int
	out   []observe.Change
	seen  map[fileID]bool
	// started is when the service whose files are looked at began, if it is one.
	started time.Time
	roots   map[uint64]*view // by mount namespace
}

type fileID struct{ dev, ino uint64 }

// view is the file systems as a process sees them.
type view struct {
	root  rootfs.Root
	table host.MountTable
}

// of gives the view of a process; nil when it may not be looked at.
func (k *looker) of(pid int) *view {
	table, err := k.fs.MountTableOf(k.b, pid)
	if err != nil {
		return nil
	}
	v := k.roots[table.NS]
	if v == nil {
		v = &view{root: rootfs.At(fmt.Sprintf("%s/%d/root", k.fs.Proc, pid), k.b), table: table}
		k.roots[table.NS] = v
	}
	v.root = v.root.With(k.b)
	return v
}

// stat is that of a file on a file system that answers.
func (k *looker) stat(v *view, name string) (unix.Stat_t, bool) {
	if k.left <= 0 || k.b.Err() != nil || !path.IsAbs(name) || !v.table.Answers(name) {
		return unix.Stat_t{}, false
	}
	k.left--
	st, err := v.root.Stat(name)
	return st, err == nil
}

// note adds a change of a file, or of what a directory directly holds, when it
// is recent. A file is reported once, whatever leads to it.
func (k *looker) note(v *view, c observe.Change, name string) {
	st, ok := k.stat(v, name)
	if !ok {
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		names, err := v.root.ReadDir(name)
		if err != nil {
			return
		}
		for _, n := range names[:min(len(names), maxInDir)] {
			if hidden := strings.HasPrefix(n, "."); hidden || strings.HasSuffix(n, "~") {
				continue
			}
			if st, ok := k.stat(v, path.Join(name, n)); ok && st.Mode&unix.S_IFMT == unix.S_IFREG {
				k.add(c, path.Join(name, n), &st)
			}
		}
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		k.add(c, name, &st)
	}
}

func (k *looker) add(c observe.Change, name string, st *unix.Stat_t) {
	id := fileID{st.Dev, st.Ino}
	// A file that was put in place by renaming has an old mtime and a new ctime;
	// a new ctime alone may be a change of its owner.
	c.At = time.Unix(st.Mtim.Unix())
	if k.seen[id] || !c.At.After(k.since) {
		return
	}
	k.seen[id] = true
	c.Path = printable(name, 200)
	if c.What == "" {
		c.What = "changed"
		if started := k.started; !started.IsZero() && c.At.After(started.Add(afterStart)) {
			c.What = "changed after the service had been started"
		}
	}
	k.out = append(k.out, c)
}

// service looks at what one service is configured by and executes.
func (k *looker) service(s *Service) {
	v := k.of(s.PID)
	if v == nil {
		return
	}
	k.started = s.Started
	defer func() { k.started = time.Time{} }()
	config := observe.Change{Kind: observe.ChangeConfig, PID: s.PID, Comm: s.Comm}
	names := slices.Clone(s.Config[:min(len(s.Config), maxInDir)])
	for _, base := range []string{s.Comm, s.Program} {
		base = strings.TrimRight(base, "0123456789.-")
		if base == "" || strings.ContainsAny(base, "/\x00") {
			continue
		}
		for _, dir := range []string{"/etc/" + base, "/etc/" + base + "/conf.d", "/etc/" + base + "/sites-enabled", "/etc/default/" + base, "/etc/" + base + ".conf"} {
			if !slices.Contains(names, dir) {
				names = append(names, dir)
			}
		}
	}
	if s.Unit != "" && !strings.ContainsAny(s.Unit, "/\x00") {
		names = append(names, "/etc/systemd/system/"+s.Unit, "/etc/systemd/system/"+s.Unit+".d", "/run/systemd/system/"+s.Unit+".d")
	}
	for _, name := range names {
		k.note(v, config, name)
	}
	k.program(v, s)
}

// program looks at what a service executes: its binary, and the files and the
// directory that its command line names.
func (k *looker) program(v *view, s *Service) {
	deploy := observe.Change{Kind: observe.ChangeProgram, PID: s.PID, Comm: s.Comm}
	if deleted := strings.HasSuffix(s.Exe, " (deleted)"); deleted {
		c := deploy
		c.What = "the program was replaced or removed after the service had been started: it still runs the old one"
		c.Path = printable(strings.TrimSuffix(s.Exe, " (deleted)"), 200)
		if st, ok := k.stat(v, strings.TrimSuffix(s.Exe, " (deleted)")); ok {
			c.At = time.Unix(st.Mtim.Unix())
		}
		k.out = append(k.out, c)
	} else if s.Exe != "" {
		k.note(v, deploy, s.Exe)
	}
	named := 0
	for i, arg := range s.Args {
		if i == 0 || named == maxBeside || len(arg) == 0 || arg[0] == '-' || len(arg) > 512 {
			continue
		}
		if !path.IsAbs(arg) {
			if !strings.ContainsAny(arg, "./") || s.Cwd == "" {
				continue
			}
			arg = path.Join(s.Cwd, arg)
		}
		named++
		st, ok := k.stat(v, arg)
		switch {
		case !ok || st.Mode&unix.S_IFMT != unix.S_IFREG || slices.Contains(written, path.Ext(arg)) || path.Base(arg) == "pid":
		case isConfig(arg):
			k.add(observe.Change{Kind: observe.ChangeConfig, PID: s.PID, Comm: s.Comm}, arg, &st)
		default:
			k.add(deploy, arg, &st)
		}
	}
}

// afterStart is how much later than its start a file of a service is written to
// count as changed since: start times are right to a second.
const afterStart = 2 * time.Second

// written are kinds of files that a service writes itself.
var written = []string{".pid", ".log", ".lock", ".sock", ".db", ".out", ".tmp"}

// isConfig says whether a file's name is that of configuration, not of code.
func isConfig(name string) bool {
	return slices.Contains([]string{".conf", ".cnf", ".cfg", ".ini", ".yml", ".yaml", ".toml", ".json", ".xml", ".properties", ".env"}, path.Ext(name))
}
