package watch

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/apache"
	"github.com/slowray/slowray/internal/sense/app/gunicorn"
	"github.com/slowray/slowray/internal/sense/app/haproxy"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/nginx"
	"github.com/slowray/slowray/internal/sense/app/pgbouncer"
	"github.com/slowray/slowray/internal/sense/app/phpfpm"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/app/tomcat"
	"github.com/slowray/slowray/internal/sense/app/uwsgi"
	"github.com/slowray/slowray/internal/sense/host"
)

// What the configurations of all servers may take together when a window begins, and
// their logs when it ends. Anybody may run programs that are called nginx, with
// configurations as large as they like. A configuration of 10,000 sites has about
// 500,000 words; logs are read at 3 GB/s.
var (
	configLimits = budget.Limits{Bytes: 128 << 20, Unpacked: 16 << 20, Files: 4096, Nodes: 1 << 20, Depth: 64, Wall: 400 * time.Millisecond}
	logLimits    = budget.Limits{Bytes: 256 << 20, Unpacked: 16 << 20, Files: 4096, Nodes: 4 << 20, Depth: 64, Wall: 400 * time.Millisecond}
	roundLimits  = budget.Limits{Wall: 150 * time.Millisecond} // of the samples in between
)

const (
	// maxServers bounds how many application servers are looked into; a host with
	// more has hundreds of containers.
	maxServers = 256
	// maxOwners bounds the processes whose user is looked up for that.
	maxOwners = 4096
	// grace is how much longer than its budget a reader may take: it looks at the
	// clock between its system calls.
	grace = 100 * time.Millisecond
)

// server is one application server while it is watched.
type server struct {
	what   string // "nginx"
	kind   observe.Kind
	pid    int
	netns  uint64
	owner  owner
	reader interface {
		// Begin reads the configuration. tooLarge: it was not read to its end.
		Begin(*budget.Budget) (tooLarge bool)
		// Close releases what has begun and is not followed.
		Close()
	}
	end func(*budget.Budget) (keep func()) // gives what puts the result into the Observation
}

// owner is whose a server is: those of one owner share one part of a budget.
type owner struct {
	uid       uint32
	container string
}

// servers are the application servers of the host over a window.
type servers struct {
	watched []*server
	nginx   []*nginx.Instance // of watched
	fpm     []*phpfpm.Instance
	apps    []*pool.Instance
	turn    int // whose workers were looked at last
}

// findApplications finds the application servers among the processes.
func (s *session) findApplications(seen []observe.Process) []*server {
	var list []*server
	byPID := map[int]*observe.Process{}
	for i := range seen {
		byPID[seen[i].PID] = &seen[i]
	}
	add := func(what string, kind observe.Kind, pid int, v *server) {
		v.what, v.kind, v.pid = what, kind, pid
		if p := byPID[pid]; p != nil {
			v.owner.container, v.netns = p.Container, p.NetNS
		}
		list = append(list, v)
	}
	for _, in := range nginx.Discover(seen, s.fs.Proc) {
		add("nginx", observe.KindNginx, in.PID, &server{reader: in, end: func(b *budget.Budget) func() {
			n, gaps, losses := in.End(b, s.out.Window)
			return func() { s.out.Nginx = append(s.out.Nginx, n); s.keep(gaps, losses) }
		}})
	}
	for _, in := range phpfpm.Discover(seen, s.fs.Proc) {
		add("php-fpm", observe.KindPHPFPM, in.PID, &server{reader: in, end: func(b *budget.Budget) func() {
			m, gaps, losses := in.End(b, s.out.Window, s.out.Processes)
			return func() { s.out.PHPFPM = append(s.out.PHPFPM, m); s.keep(gaps, losses) }
		}})
	}
	for _, discover := range []func([]observe.Process, string) []*pool.Instance{
		apache.Discover, haproxy.Discover, uwsgi.Discover, gunicorn.Discover, tomcat.Discover, pgbouncer.Discover,
	} {
		for _, in := range discover(seen, s.fs.Proc) {
			in.Silent = s.opt.Silent
			add(string(in.Out.Kind), in.Out.Kind, in.PID, &server{reader: in, end: func(b *budget.Budget) func() {
				a, gaps, losses := in.End(b, s.out.Window)
				return func() { s.out.AppServers = append(s.out.AppServers, a); s.keep(gaps, losses) }
			}})
		}
	}
	return list
}

// begin finds the application servers, and reads their configurations within
// one budget.
func (a *servers) begin(s *session) error {
	found := s.findApplications(s.seenProcesses())
	for _, v := range found[:min(len(found), maxOwners)] {
		v.owner.uid, _, _ = prefork.User(s.fs.Proc, v.pid)
	}
	groups := byOwner(found)
	if left := len(found) - maxServers; left > 0 {
		s.lose(fmt.Sprintf("application servers beyond %d", maxServers), int64(left))
		groups = fewest(groups, maxServers)
	}
	starts := map[int]uint64{}
	for i := range s.procs {
		starts[s.procs[i].PID] = s.procs[i].StartTicks
	}
	begun := map[*server]bool{}
	inTurn(budget.New(s.ctx, configLimits), s.opt.Memory.filter(groups, starts, func(v *server, until time.Time) {
		s.serverGap(v, "its configuration is larger than is read: it is read again after %s", until.Format(time.TimeOnly))
	}), func(b *budget.Budget, v *server) {
		tooLarge, err := apart(b, func() bool { return tooDear(b, v.reader.Begin) }, v.reader.Close)
		s.opt.Memory.note(v.pid, starts[v.pid], tooLarge || err != nil)
		if err != nil {
			s.serverGap(v, "%s", err)
			return
		}
		begun[v] = true
	})
	for _, v := range found {
		in, isPool := v.reader.(*pool.Instance)
		if !begun[v] || isPool && in.Other {
			continue
		}
		a.watched = append(a.watched, v)
		switch in := v.reader.(type) {
		case *nginx.Instance:
			a.nginx = append(a.nginx, in)
		case *phpfpm.Instance:
			a.fpm = append(a.fpm, in)
		case *pool.Instance:
			a.apps = append(a.apps, in)
		}
	}
	return nil
}

// tooDear says that a configuration was too large, and not that others had the CPU
// meanwhile: then it is worth another try.
func tooDear(b *budget.Budget, begin func(*budget.Budget) bool) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	part, before := b.TimeLeft(), host.ThreadCPU()
	tooLarge := begin(b)
	return tooLarge && host.ThreadCPU()-before >= min(expensive, part/4)
}

const expensive = 5 * time.Millisecond // of CPU time

func (s *session) serverGap(v *server, format string, args ...any) {
	s.out.Gaps = append(s.out.Gaps, observe.Gap{Kind: v.kind, NetNS: v.netns, Subject: fmt.Sprintf("%s (pid %d)", v.what, v.pid),
		Because: fmt.Sprintf(format, args...), Partial: true})
}

// sampleWorkers looks once at the workers of each server. A round that is over its time
// goes on with the others in the next one.
func (a *servers) sampleWorkers(s *session) {
	b := budget.New(s.ctx, roundLimits)
	n := len(a.fpm) + len(a.apps)
	for range n {
		if b.Err() != nil {
			return
		}
		a.turn = (a.turn + 1) % n
		if i := a.turn - len(a.fpm); i < 0 {
			a.fpm[a.turn].Sample(b, s.fs.Activity)
		} else {
			a.apps[i].Sample(b, s.fs.Activity)
		}
	}
}

// sampleConnections counts the connections of nginx.
func (a *servers) sampleConnections(s *session) {
	b := budget.New(s.ctx, roundLimits)
	for i, in := range a.nginx {
		in.SampleConnections(b.Share(len(a.nginx)-i), s.fs.SocketFDCount)
	}
}

// end reads what the logs of the servers grew by, within one budget.
func (a *servers) end(s *session) {
	keep := map[*server]func(){}
	inTurn(budget.New(s.ctx, logLimits), byOwner(a.watched), func(b *budget.Budget, v *server) {
		kept, err := apart(b, func() func() { return v.end(b) }, func() {})
		if err != nil {
			kept = func() { s.serverGap(v, "%s", err) }
		}
		keep[v] = kept
	})
	before := len(s.out.Gaps)
	for _, v := range a.watched { // in the order in which they were found
		keep[v]()
	}
	a.oneIsNotAll(s.out.Gaps[before:])
}

// oneIsNotAll makes gaps of one server partial where others of its kind were read: what
// they do can still be judged.
func (a *servers) oneIsNotAll(gaps []observe.Gap) {
	read := map[observe.Kind]bool{}
	for _, in := range a.nginx {
		read[observe.KindNginx] = read[observe.KindNginx] || in.Read()
	}
	for _, in := range a.fpm {
		read[observe.KindPHPFPM] = read[observe.KindPHPFPM] || in.Read()
	}
	for i := range gaps {
		if g := &gaps[i]; read[g.Kind] {
			g.Partial = true
		}
	}
}

// byOwner groups servers by whose they are: those of root first, for nobody else can
// make more of them, then those of owners with few.
func byOwner(list []*server) [][]*server {
	at := map[owner]int{}
	var out [][]*server
	for _, v := range list {
		i, ok := at[v.owner]
		if !ok {
			i = len(out)
			at[v.owner], out = i, append(out, nil)
		}
		out[i] = append(out[i], v)
	}
	others := func(g []*server) int { return min(1, int(g[0].owner.uid)) }
	slices.SortStableFunc(out, func(a, b []*server) int {
		return cmp.Or(cmp.Compare(others(a), others(b)), cmp.Compare(len(a), len(b)))
	})
	return out
}

// fewest leaves at most n servers, and of each owner as many as of any other.
func fewest(groups [][]*server, n int) [][]*server {
	for i := range groups { // what one does not need is there for those after it
		share := n / (len(groups) - i)
		groups[i] = groups[i][:min(len(groups[i]), share)]
		n -= len(groups[i])
	}
	return slices.DeleteFunc(groups, func(g []*server) bool { return len(g) == 0 })
}

// inTurn does something for each server with its part of the budget: each owner has
// one part, however many servers are theirs.
func inTurn(b *budget.Budget, groups [][]*server, do func(*budget.Budget, *server)) {
	for i, group := range groups {
		part := b.Share(len(groups) - i)
		for j, v := range group {
			do(part.Share(len(group)-j), v)
		}
	}
}

// apart runs a reader in a goroutine of its own, which is left behind when it does not
// return within its budget: a system call may never do, as on a disk that is dying.
// Then, when it does return, undo is called. The error says why there is no result.
func apart[T any](b *budget.Budget, do func() T, undo func()) (result T, err error) {
	if n := leftBehind.Load(); n >= maxLeftBehind {
		return result, fmt.Errorf("it was not read: %d readers of others have not returned from the kernel yet", n)
	}
	type outcome struct {
		result T
		crash  any
	}
	var state atomic.Int32 // 0, until one of the two has made up its mind
	const ended, left = 1, 2
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.crash = recover()
			done <- o
			if !state.CompareAndSwap(0, ended) {
				undo()
				leftBehind.Add(-1)
			}
		}()
		o.result = do()
	}()
	timer := time.NewTimer(b.TimeLeft() + grace)
	defer timer.Stop()
	var o outcome
	select {
	case o = <-done:
	case <-timer.C:
		leftBehind.Add(1)
		if state.CompareAndSwap(0, left) {
			return result, errors.New("it could not be read: a system call does not return, as on a file system that does not answer")
		}
		leftBehind.Add(-1)
		o = <-done
	}
	if o.crash != nil {
		return result, fmt.Errorf("its reader crashed, which is a bug of slowray: %v", o.crash)
	}
	return o.result, nil
}

// maxLeftBehind is how many readers may be left behind at a time: each holds a thread.
const maxLeftBehind = 8

var leftBehind atomic.Int32
