package host

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// Identity is what a process is known by. Its container has a name where Names has
// ContainerName to ask.
type Identity struct {
	PID, PPID int
	observe.Identity
}

// Names tells processes by their number, from /proc, and remembers them: also
// those that ended meanwhile, and not the wrong one when a number was given to
// another process. It is for one goroutine. Asking again for a process that is
// remembered allocates nothing.
type Names struct {
	// ContainerName, when set, names containers by their id as in Identity. It
	// must be cheap, and empty when it does not know.
	ContainerName func(id string) string
	// Workload, when set, tells whose container that is at a time, as cheaply.
	Workload func(container string, at int64) observe.Workload
	// Gone, when set, tells name and parent of a process that ended before it was
	// asked for; false when it does not know.
	Gone func(pid int) (comm string, parent int, ok bool)

	fs       FS
	now      func() time.Time
	bootWall func(now time.Time) int64 // wall clock at boot, ns since 1970
	recent   map[int]*name             // asked for since the last turn
	older    map[int]*name             // asked for before
	elders   map[siblings]*name        // short-lived ones stand for those that come after them
}

// siblings are the processes of a name that a parent starts.
type siblings struct {
	parent int
	comm   string
}

// name is a process that is remembered.
type name struct {
	Identity
	known   bool      // false: there was no such process
	gone    bool      // it has ended
	ticks   uint64    // when it began, since boot, 1/100 s
	began   int64     // the same by the wall clock, ns
	checked time.Time // when it was last read
	master  int       // Family's answer, 0 = not asked for yet
}

const (
	// maxNames bounds what is remembered: twice as many, some 300 bytes each.
	maxNames = 4096
	// recheck is how long a name is believed. A number can come back only
	// after all others were given out (pid_max, at least 32,768 of them).
	recheck = 5 * time.Second
	// young is how old a process may be to be one of many that come and go.
	young = 2 * time.Second
	// maxElders bounds the kinds of such processes. Then all are forgotten.
	maxElders = 1024
	// tickSlack is what a start time may be wrong by: it is kept in 1/100 s.
	tickSlack = 20 * time.Millisecond
)

// Names returns an empty memory of the processes of fs.
func (fs FS) Names() *Names {
	return &Names{fs: fs, now: time.Now, bootWall: bootWall, recent: map[int]*name{}}
}

// StartedAt is when a process with these StartTicks began.
func (fs FS) StartedAt(ticks uint64) time.Time {
	return time.Unix(0, bootWall(time.Now())+int64(ticks)*int64(time.Second/userHZ))
}

// bootWall is when CLOCK_BOOTTIME began.
func bootWall(now time.Time) int64 {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return 0
	}
	return now.UnixNano() - up.Nano()
}

// Of is the process that had this number at a time (wall clock, ns since
// 1970); false when it ended before it was asked for the first time, or when
// that number belongs to a younger process by now.
func (n *Names) Of(pid int, at int64) (Identity, bool) {
	p := n.find(pid, at)
	if p == nil {
		return Identity{}, false
	}
	id := p.Identity
	if n.ContainerName != nil && id.Container != "" {
		id.ContainerName = n.ContainerName(id.Container)
	}
	if n.Workload != nil && id.Container != "" && !observe.UsersOwn(id.Cgroup) {
		id.Workload = n.Workload(id.Container, at)
	}
	return id, true
}

// Family is the topmost ancestor of a process that runs the same program: one
// number for a master and all its workers. Of processes of one name that a parent
// starts again and again, for a moment each, it is the first that ended: one
// number for all the calls of a shell's loop. It is the number itself when nothing
// is known of it.
func (n *Names) Family(pid int, at int64) int {
	first := n.find(pid, at)
	if first == nil {
		return pid
	}
	if first.master != 0 {
		return first.master
	}
	p := first
	for range 16 {
		parent := n.find(p.PPID, at)
		if parent == nil || parent.PID == 1 || parent.Comm != p.Comm {
			break
		}
		p = parent
	}
	if p == first {
		p = n.elder(p)
	}
	first.master = p.PID
	return p.PID
}

// elder is the sibling that stands for a process that came a moment ago, or is
// gone already: itself when there is none that ended.
func (n *Names) elder(p *name) *name {
	now := n.now()
	if p.PPID <= 1 || !p.gone && now.UnixNano()-p.began > int64(young) {
		return p
	}
	key := siblings{p.PPID, p.Comm}
	if e := n.elders[key]; e != nil && e != p {
		if !e.gone {
			if again := n.check(e.PID, nil, now); !again.known || again.gone || again.ticks != e.ticks {
				e.gone = true
			}
		}
		if e.gone {
			return e
		}
	}
	if n.elders == nil || len(n.elders) >= maxElders {
		n.elders = map[siblings]*name{}
	}
	n.elders[key] = p
	return p
}

// Master is the Family of a process that runs now, and its name; empty when it
// is not known.
func (n *Names) Master(pid int) (master int, comm string) {
	now := n.now().UnixNano()
	master = n.Family(pid, now)
	id, _ := n.Of(master, now)
	return master, id.Comm
}

// find is the process that had this number at a time, nil when not known.
func (n *Names) find(pid int, at int64) *name {
	if pid <= 0 {
		return nil
	}
	now := n.now()
	p := n.remembered(pid)
	if p == nil || now.Sub(p.checked) > recheck {
		before := p
		if p = n.check(pid, p, now); p != before {
			n.remember(pid, p)
		}
		if before != nil && before.known && before.ticks != p.ticks && p.began > at+int64(tickSlack) {
			return before // the number was given away since
		}
	}
	if !p.known || p.began > at+int64(tickSlack) {
		return nil
	}
	return p
}

// remembered finds an entry; one that is asked for again stays.
func (n *Names) remembered(pid int) *name {
	if p := n.recent[pid]; p != nil {
		return p
	}
	p := n.older[pid]
	if p != nil {
		n.remember(pid, p)
	}
	return p
}

// remember keeps an entry. When there are too many, those that were not asked
// for since the last time are forgotten.
func (n *Names) remember(pid int, p *name) {
	if len(n.recent) >= maxNames {
		n.older, n.recent = n.recent, make(map[int]*name, maxNames)
	}
	n.recent[pid] = p
}

// check reads a process. It returns old when that is still right: a process
// that ended keeps its name, for records of it that come late.
func (n *Names) check(pid int, old *name, now time.Time) *name {
	s := procScan{raw: getRaw()}
	defer s.put()
	dir, err := s.open(unix.AT_FDCWD, s.num(n.fs.Proc+"/", pid, ""), unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		defer closeFD(dir)
	}
	var stat ProcSample
	var b []byte
	if err == nil {
		b, err = s.read(dir, nameStat)
	}
	if err != nil || !parsePIDStat(b, &stat) {
		if old != nil && (old.known || n.Gone == nil) {
			old.checked = now
			return old
		}
		return n.ended(pid, now)
	}
	if old != nil && old.known && old.ticks == stat.StartTicks && old.Comm == stat.Comm && old.PPID == stat.PPID {
		old.checked, old.master = now, 0
		return old
	}
	p := &name{
		Identity: Identity{PID: pid, PPID: stat.PPID, Identity: observe.Identity{Comm: stat.Comm}},
		known:    true, ticks: stat.StartTicks, checked: now,
		began: n.bootWall(now) + int64(stat.StartTicks)*int64(time.Second/userHZ),
	}
	if b, err = s.read(dir, nameCgroup); err == nil {
		g := nameGroups(parseProcCgroup(b))
		p.Cgroup, p.Container, p.Unit = g.path, g.container, g.unit
	}
	return p
}

// ended is a process that is not there any more, as far as Gone knows it. Its
// group is its parent's, which it was started in.
func (n *Names) ended(pid int, now time.Time) *name {
	p := &name{checked: now}
	if n.Gone == nil {
		return p
	}
	comm, parent, ok := n.Gone(pid)
	if !ok {
		return p
	}
	p.Identity, p.known, p.gone = Identity{pid, parent, observe.Identity{Comm: comm}}, true, true
	if of := n.find(parent, now.UnixNano()); parent != pid && of != nil {
		p.Cgroup, p.Container, p.Unit = of.Cgroup, of.Container, of.Unit
	}
	return p
}
