package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// ProcSample is one process at one moment. Counters are totals since the
// process began.
type ProcSample struct {
	PID, PPID  int
	Comm       string
	Program    string // Programs.Of, of those that serve and are called something else
	Cmdline    string // arguments joined by spaces, without secrets, at most 512 bytes; empty for kernel threads
	State      byte   // letter of proc_pid_stat(5), of the main thread
	Kernel     bool   // kernel thread
	Threads    int
	StartTicks uint64 // since boot, 1/100 s
	Nice       int
	RSSBytes   uint64
	Policy     string // "fifo", "rr", "deadline", "idle", else empty

	UserTicks   uint64 // 1/100 s, all threads, those that ended too
	SystemTicks uint64
	ChildTicks  uint64 // of children that ended and were waited for, and of theirs
	RunNS       uint64 // on a CPU, the threads that are alive
	RunDelayNS  uint64 // runnable but not on a CPU, the threads that are alive
	Timeslices  uint64
	MajorFaults uint64

	IOKnown    bool // /proc/PID/io could be read (needs CAP_SYS_PTRACE for others' processes)
	ReadBytes  uint64
	WriteBytes uint64

	FDs     int // -1 when not known
	FDLimit int // soft RLIMIT_NOFILE, 0 when not known
	FDHard  int

	NetNS     uint64 // 0 when not known
	Cgroup    string // most telling path: v2, else v1 cpu, else v1 memory, else systemd
	Container string
	Unit      string
	Groups    *ProcGroups // shared between processes of the same groups; nil when not known

	threads []threadSched // by TID; nil for a process of one thread
}

// threadSched is /proc/PID/task/TID/schedstat: nanoseconds on a CPU and
// nanoseconds waiting for one, and time slices (Documentation/scheduler/sched-stats.rst).
type threadSched struct {
	tid                int
	run, delay, slices uint64
}

const maxCmdline = 512

var (
	nameStat      = []byte("stat\x00")
	nameSchedstat = []byte("schedstat\x00")
	nameCmdline   = []byte("cmdline\x00")
	nameCgroup    = []byte("cgroup\x00")
	nameLimits    = []byte("limits\x00")
	nameIO        = []byte("io\x00")
	nameNetNS     = []byte("ns/net\x00")
	nameTask      = []byte("task\x00")
)

// A procScan is one pass over /proc.
type procScan struct {
	*raw
	procfs   bool                  // whether it is a real procfs, not a fixture
	groups   map[string]groupNames // by contents of /proc/PID/cgroup
	failures [3]failure
}

// A failure counts the processes of which one file could not be read.
type failure struct {
	count int
	pid   int // one of them
	err   error
}

const (
	failNetNS = iota
	failIO
	failFD
)

// Processes reads all of /proc. A process that ends meanwhile is kept with what
// was seen, or left out when nothing was. What the rights do not allow is one
// partial gap per kind of file, not per process.
func (fs FS) Processes() ([]ProcSample, []observe.Gap) {
	s := procScan{raw: getRaw(), procfs: fs.real(), groups: make(map[string]groupNames)}
	defer s.put()
	pids, err := s.numbers(unix.AT_FDCWD, s.cstring(fs.Proc))
	if err != nil {
		return nil, []observe.Gap{{Kind: observe.KindProcess, Subject: fs.Proc, Because: because("not readable", err, "")}}
	}
	pids = slices.Clone(pids)
	slices.Sort(pids)
	out := make([]ProcSample, 0, len(pids))
	for _, pid := range pids {
		dir, err := s.open(unix.AT_FDCWD, s.num(fs.Proc+"/", pid, ""), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		out = append(out, ProcSample{})
		if !s.process(dir, pid, &out[len(out)-1]) {
			out = out[:len(out)-1]
		}
		closeFD(dir)
	}
	return out, s.gaps(fs.Proc, pids)
}

// process fills p from the directory of one process; false when not even its
// stat could be read.
func (s *procScan) process(dir, pid int, p *ProcSample) bool {
	b, err := s.read(dir, nameStat)
	if err != nil || !parsePIDStat(b, p) {
		return false
	}
	p.PID = pid
	p.FDs = -1
	s.sched(dir, pid, p)
	if b, err = s.read(dir, nameCgroup); err == nil {
		g, ok := s.groups[string(b)]
		if !ok {
			g = nameGroups(parseProcCgroup(b))
			s.groups[string(b)] = g
		}
		p.Groups, p.Cgroup, p.Container, p.Unit = g.groups, g.path, g.container, g.unit
	}
	if b, err = s.readlink(dir, nameNetNS); err == nil {
		p.NetNS, _ = parseNSLink(b)
	} else {
		s.fail(failNetNS, pid, err)
	}
	if p.Kernel || p.State == 'Z' {
		return true
	}
	if b, err = s.read(dir, nameCmdline); err == nil {
		p.Cmdline = parseCmdline(b)
	}
	if b, err = s.read(dir, nameLimits); err == nil {
		p.FDLimit, p.FDHard = parseLimits(b)
	}
	if b, err = s.read(dir, nameIO); err == nil {
		p.ReadBytes, p.WriteBytes, p.IOKnown = parseIO(b)
	} else {
		s.fail(failIO, pid, err)
	}
	if n, err := s.countFDs(dir, s.procfs); err == nil {
		p.FDs = n
	} else {
		s.fail(failFD, pid, err)
	}
	return true
}

// sched sums the scheduler's figures over the threads: /proc/PID/schedstat is
// that of the main thread alone.
func (s *procScan) sched(dir, pid int, p *ProcSample) {
	if p.Threads <= 1 {
		if b, err := s.read(dir, nameSchedstat); err == nil {
			p.RunNS, p.RunDelayNS, p.Timeslices, _ = parseSchedstat(b)
		}
		return
	}
	tids, err := s.numbers(dir, nameTask)
	if err != nil {
		return
	}
	p.threads = make([]threadSched, 0, len(tids))
	for _, tid := range tids {
		b, err := s.read(dir, s.num("task/", tid, "/schedstat"))
		if err != nil {
			continue
		}
		t := threadSched{tid: tid}
		t.run, t.delay, t.slices, _ = parseSchedstat(b)
		p.threads = append(p.threads, t)
		p.RunNS += t.run
		p.RunDelayNS += t.delay
		p.Timeslices += t.slices
	}
	slices.SortFunc(p.threads, func(a, b threadSched) int { return a.tid - b.tid })
}

func (s *procScan) fail(kind, pid int, err error) {
	if vanished(err) {
		return
	}
	f := &s.failures[kind]
	if f.count++; f.count == 1 {
		f.pid, f.err = pid, err
	}
}

func (s *procScan) gaps(proc string, pids []int) []observe.Gap {
	var gaps []observe.Gap
	for kind, what := range [...]string{
		failNetNS: "the network namespace",
		failIO:    "the storage I/O",
		failFD:    "the number of open files",
	} {
		if f := s.failures[kind]; f.count > 0 {
			g := observe.Gap{Kind: observe.KindProcess, Partial: true, Subject: fmt.Sprintf("process %d", f.pid)}
			if f.count > 1 {
				g.Subject = fmt.Sprintf("%d processes, one of them %d", f.count, f.pid)
			}
			g.Because = because(what+" could not be read", f.err, "CAP_SYS_PTRACE")
			gaps = append(gaps, g)
		}
	}
	if len(pids) > 0 && pids[0] != 1 {
		gaps = append(gaps, observe.Gap{
			Kind: observe.KindProcess, Subject: proc, Partial: true,
			Because: "process 1 is not shown: other users' processes are hidden (mount option hidepid; needs CAP_SYS_PTRACE)",
		})
	}
	return gaps
}

// parseCmdline joins the NUL-separated arguments of /proc/PID/cmdline, without the
// secrets in them.
func parseCmdline(b []byte) string {
	b = bytes.TrimRight(b, "\x00 \n")
	if len(b) > 4*maxCmdline {
		b = b[:4*maxCmdline]
		// Of half a word it cannot be known whether it holds a secret.
		if i := bytes.LastIndexAny(b, "\x00 \n\t"); i >= 0 {
			b = b[:i]
		} else if i := bytes.IndexAny(b, ":="); i >= 0 {
			b = b[:i]
		}
	}
	b = []byte(observe.CommandLine(string(b)))
	for i, c := range b {
		if c == '\n' || c == '\t' {
			b[i] = ' '
		}
	}
	return printable.Name(b, maxCmdline)
}

// parseLimits takes RLIMIT_NOFILE from /proc/PID/limits (proc_pid_limits,
// fs/proc/base.c). Zeros when the line is not there or says "unlimited".
func parseLimits(b []byte) (soft, hard int) {
	v, _ := AfterKey(b, "Max open files")
	f, v := nextField(v)
	soft, _ = ParseSmall(f)
	f, _ = nextField(v)
	hard, _ = ParseSmall(f)
	return soft, hard
}

// parseIO takes the bytes from and to storage from /proc/PID/io (proc_pid_io(5)).
func parseIO(b []byte) (read, write uint64, ok bool) {
	v, found := AfterKey(b, "read_bytes:")
	read, ok = ParseUint(v)
	w, foundWrite := AfterKey(b, "write_bytes:")
	write, okWrite := ParseUint(w)
	return read, write, found && foundWrite && ok && okWrite
}

// parseSchedstat reads the three columns of a schedstat file: ns on a CPU, ns
// runnable but waiting for one, and time slices.
func parseSchedstat(b []byte) (run, delay, slices uint64, ok bool) {
	b, _ = nextLine(b)
	var v [3]uint64
	for i := range v {
		var f []byte
		f, b = nextField(b)
		if v[i], ok = ParseUint(f); !ok {
			return 0, 0, 0, false
		}
	}
	return v[0], v[1], v[2], true
}

// parseNSLink reads the target of a namespace link, as "net:[4026531840]".
func parseNSLink(b []byte) (uint64, bool) {
	_, b, _ = bytes.Cut(b, []byte(":["))
	b, found := bytes.CutSuffix(b, []byte("]"))
	if !found {
		return 0, false
	}
	return ParseUint(b)
}

// netNSOf is the inode of a process's network namespace.
func (fs FS) netNSOf(pid int) (uint64, error) {
	return netNSLink(fmt.Sprintf("%s/%d/ns/net", fs.Proc, pid))
}

func netNSLink(path string) (uint64, error) {
	target, err := os.Readlink(path)
	if err != nil {
		return 0, err
	}
	inode, ok := parseNSLink([]byte(target))
	if !ok {
		return 0, fmt.Errorf("%s: %w", path, errNotNamespace)
	}
	return inode, nil
}

var errNotNamespace = errors.New("not a namespace link")
