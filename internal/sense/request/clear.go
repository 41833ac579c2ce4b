package request

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/tlslib"
)

const (
	// clearEvery is how often it is looked at which functions to watch, dutyEvery whether
	// they are watched now.
	clearEvery, dutyEvery = 250 * time.Millisecond, 25 * time.Millisecond
	// clearFirst is how long all functions of a library are watched where nothing is known
	// of the connections that its processes have: what speaks HTTP/2 says something meanwhile.
	clearFirst = 3 * time.Second
	// clearIdle is after how long without HTTP/2 they are watched no more.
	clearIdle = time.Minute
	// clearAgain is after how long a library without HTTP/2 is tried anew, where requests
	// overlap; and a process is looked at anew.
	clearAgain = 5 * time.Minute
	// maxLibraries bounds the files that are watched at once: LIBRARIES of clear.h.
	maxLibraries = 64
	// maxProcesses bounds those that are known, maxLooks those that are looked at at once.
	maxClearProcesses, maxLooks = 4096, 16
	// lookWall is after how long looking at processes goes on later: meanwhile nothing is
	// judged. lookPace is how much longer it rests than it took.
	lookWall, lookPace = time.Second, 4
	// unusedEvery is how often libraries that no process has any more are given up, where
	// there are many.
	unusedEvery = 10 * time.Second
)

// self is not watched: what it asks for itself is nobody's request.
var self = os.Getpid()

// clearSide tells the requests of HTTP/2 connections under TLS apart, by probes at the
// functions of the library that encrypts them (clear.bpf.c).
//
// Of each library that a process with connections under TLS has, one function is watched
// that is called once for a connection, and says which protocol was agreed. All others are
// watched while connections of HTTP/2 come and go; and at first, since connections that
// were there before say nothing any more.
type clearSide struct {
	objects bpf.ClearObjects
	loaded  bool
	multi   bool // many places with one link (Linux 6.6)
	failed  error
	sockets []io.Closer // what is attached to sockets, while any library is watched

	processes map[int]*clearProcess
	last      int // process that was wanted last
	waiting   []*clearProcess
	libraries map[tlslib.ID]*library
	finder    tlslib.Finder
	working   chan found // nil while nobody works
	cancel    context.CancelFunc
	next      time.Time
	epochs    [maxLibraries]uint32 // how often functions of each began to be watched, or ended
	look      time.Time            // no process is looked at before
	unused    time.Time
	full      bool // it was said that there are too many libraries
	judged    time.Time
	duty      duty
}

// clearProcess is a process with connections under TLS.
type clearProcess struct {
	pid        int
	looked     time.Time
	files      []tlslib.ID
	other      string // what encrypts there, where it cannot be watched
	sealed     bool   // it has requests under TLS that are not told apart
	overlapped bool   // they overlap
}

// found is what came of a look at processes.
type found struct {
	libraries []*library
	files     map[*clearProcess]tlslib.Process
	later     []*clearProcess // that were not looked at
	took      time.Duration
	full      bool
}

// library is a file with functions of TLS.
type library struct {
	file     *tlslib.File
	number   uint64
	watched  bool        // as a whole
	protocol []io.Closer // watches which protocol is agreed
	all      []io.Closer // watches the other functions; none between bursts
	seen     uint64      // of HTTP/2, see http2_by
	since    time.Time   // all are watched, or are no more
	used     time.Time   // HTTP/2 was seen last
	err      error
}

// want notes a process that has a connection under TLS.
func (c *clearSide) want(pid int, overlapped bool) {
	if pid == c.last && !overlapped || pid == 0 || c.failed != nil {
		return
	}
	c.last = pid
	p := c.processes[pid]
	if p == nil {
		if c.processes == nil || len(c.processes) >= maxClearProcesses {
			c.processes = map[int]*clearProcess{}
		}
		p = &clearProcess{pid: pid}
		if pid == self {
			p.other = "slowray's own TLS"
		}
		c.processes[pid] = p
	}
	p.sealed, p.overlapped = true, p.overlapped || overlapped
	if len(c.waiting) < maxLooks && pid != self && (p.looked.IsZero() || overlapped && time.Since(p.looked) > clearAgain) {
		p.looked = time.Now()
		c.waiting = append(c.waiting, p)
	}
}

// tellClear begins to watch what has to be watched, and ends it. What takes long is done
// aside: meanwhile nothing here is changed by anybody else.
func (r *Recorder) tellClear(now time.Time) {
	c := &r.clear
	if c.working != nil {
		select {
		case f := <-c.working:
			c.working = nil
			r.takeOver(f)
		default:
		}
		return
	}
	if c.failed != nil || now.Before(c.next) {
		return
	}
	c.next = now.Add(dutyEvery)
	var begin, end, unused []*library
	if c.loaded && now.Sub(c.unused) >= unusedEvery {
		c.unused = now
		if len(c.libraries) > maxLibraries/2 {
			unused = c.giveUp(running)
		}
	}
	if c.loaded && now.Sub(c.judged) >= clearEvery {
		c.judged = now
		var seen [maxLibraries]uint64
		// A variable that cannot be read says nothing new: it was there when it was loaded.
		_ = c.objects.Http2By.Get(&seen)
		begin, end = c.judge(now, &seen)
	}
	step := dutyStays
	if c.loaded {
		var open int64
		_ = c.objects.UnderWay.Get(&open)
		step = c.duty.look(now, open, r.probeCost)
		c.duty.tell(&c.objects)
	}
	var waiting []*clearProcess
	if !now.Before(c.look) {
		waiting, c.waiting = c.waiting, nil
	}
	if len(waiting)+len(begin)+len(end)+len(unused) == 0 && step == dutyStays {
		return
	}
	if !c.loaded {
		if c.failed = r.loadClear(); c.failed != nil {
			c.close()
			r.missing = append(r.missing, fmt.Sprintf("single requests of HTTP/2 under TLS: %v", c.failed))
			return
		}
	}
	working := make(chan found, 1)
	c.working = working
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() {
		defer cancel()
		r.endAll(append(end, unused...))
		for _, l := range unused {
			l.close()
			c.finder.Forget(l.file.ID)
		}
		f := c.find(ctx, waiting)
		c.beginAll(append(begin, f.libraries...))
		switch step {
		case dutyRests:
			c.rest()
		case dutyBegins:
			c.beginAll(nil)
		}
		working <- f
	}()
}

// TellClear loads the programs, to see whether they can be.
func (r *Recorder) TellClear() error {
	r.clear.failed = r.loadClear()
	return r.clear.failed
}

// judge says which libraries to watch as a whole from now on, and which no more; seen is what
// of HTTP/2 each has seen.
func (c *clearSide) judge(now time.Time, seen *[maxLibraries]uint64) (begin, end []*library) {
	sealed, overlapped := map[tlslib.ID]bool{}, map[tlslib.ID]bool{}
	for _, p := range c.processes {
		for _, id := range p.files {
			sealed[id] = sealed[id] || p.sealed
			overlapped[id] = overlapped[id] || p.overlapped
		}
		p.sealed, p.overlapped = false, false
	}
	c.last = 0
	for id, l := range c.libraries {
		if l.err != nil {
			continue
		}
		news := seen[l.number] != l.seen
		l.seen = seen[l.number]
		if news {
			l.used = now
		}
		speaks, silent := !l.used.Before(l.since), clearFirst
		if speaks {
			silent = clearIdle
		}
		switch {
		// Connections of HTTP/2 that were silent for long may go on.
		case !l.watched && (news || sealed[id] && !l.used.IsZero() || overlapped[id] && now.Sub(l.since) > clearAgain):
			l.since = now
			begin = append(begin, l)
		case l.watched && now.Sub(l.since) > silent && now.Sub(l.used) > silent:
			l.since = now
			if !speaks {
				l.used = time.Time{}
			}
			end = append(end, l)
		}
	}
	return begin, end
}

// takeOver takes what was found, and tells what cannot be watched.
func (r *Recorder) takeOver(f found) {
	c := &r.clear
	c.look = time.Now().Add(lookPace * f.took)
	c.waiting = append(f.later, c.waiting...)
	for is, p := range f.files {
		is.files, is.other = p.IDs, p.Other
	}
	if f.full && !c.full {
		c.full = true
		r.missing = append(r.missing, fmt.Sprintf("single requests of HTTP/2 under TLS by some processes: they have more than %d libraries", maxLibraries))
	}
	for _, l := range f.libraries {
		if l.err != nil {
			r.missing = append(r.missing, fmt.Sprintf("single requests of HTTP/2 under TLS by %s: %v", l.file.Name, l.err))
		}
		if c.libraries == nil {
			c.libraries = map[tlslib.ID]*library{}
		}
		c.libraries[l.file.ID] = l
	}
}

// opaque says that what a process says under TLS cannot be seen, and by what it encrypts.
func (c *clearSide) opaque(pid int) (by string, is bool) {
	p := c.processes[pid]
	switch {
	case c.failed != nil:
		return "", true
	case p == nil:
		return "", false
	}
	return p.other, p.other != ""
}

// mistaken is how many connections were taken for another one.
func (c *clearSide) mistaken() (n uint64) {
	if c.loaded {
		_ = c.objects.Contradictions.Get(&n) // one that cannot be read counts nothing
	}
	return n
}

// opaques are the processes that are known to be, and what encrypts there.
func (c *clearSide) opaques() map[int]string {
	var all map[int]string
	for pid, p := range c.processes {
		if p.other != "" {
			if all == nil {
				all = map[int]string{}
			}
			all[pid] = p.other
		}
	}
	return all
}

// beginAll watches all functions of libraries, and of those that are watched already.
func (c *clearSide) beginAll(libraries []*library) {
	for _, l := range libraries {
		l.watched = l.err == nil
	}
	if c.duty.resting() {
		return
	}
	attach := slices.DeleteFunc(append(slices.Collect(maps.Values(c.libraries)), libraries...), func(l *library) bool {
		return !l.watched || l.all != nil
	})
	if len(attach) == 0 {
		return
	}
	c.newEpoch(attach...)
	if c.sockets == nil {
		for _, p := range c.socketHooks() {
			if l, err := link.AttachTracing(link.TracingOptions{Program: p}); err == nil {
				c.sockets = append(c.sockets, l)
			}
		}
	}
	for _, l := range attach {
		if l.all == nil {
			l.all, l.err = c.attach(l, func(k tlslib.Kind) bool { return !k.OncePerConnection() })
		}
	}
	c.duty.begun(&c.objects)
}

// rest ends a burst: connections stay those whose streams are distinguished.
func (c *clearSide) rest() {
	for _, l := range c.libraries {
		closeAll(l.all)
		l.all = nil
		c.newEpoch(l)
	}
}

// newEpoch says that functions of libraries were not watched, or are no more.
func (c *clearSide) newEpoch(libraries ...*library) {
	for _, l := range libraries {
		c.epochs[l.number]++
	}
	_ = c.objects.Epochs.Set(c.epochs) // mapped memory: it cannot fail
}

// endAll watches them no more: all connections that are distinguished are the recorder's again,
// until those of other libraries are met anew.
func (r *Recorder) endAll(libraries []*library) {
	if len(libraries) == 0 {
		return
	}
	c := &r.clear
	for _, l := range libraries {
		closeAll(l.all)
		l.all, l.watched = nil, false
	}
	c.newEpoch(libraries...)
	if c.objects.GiveBack.Set(uint8(1)) == nil {
		// What is not given back has no requests until it is closed.
		_ = r.look(c.objects.Http2Flush, c.objects.PlaceOf)
		_ = c.objects.GiveBack.Set(uint8(0))
	}
	for _, l := range c.libraries {
		if l.watched {
			return
		}
	}
	closeAll(c.sockets)
	c.sockets = nil
}

// closeAll closes links at once: each waits for the kernel to let go of its program.
func closeAll(links []io.Closer) {
	var all sync.WaitGroup
	for _, l := range links {
		all.Go(func() { l.Close() })
	}
	all.Wait()
}

func (l *library) close() {
	closeAll(l.protocol)
	closeAll(l.all)
	l.file.Close()
}

func (c *clearSide) close() {
	libraries := slices.Collect(maps.Values(c.libraries))
	if c.working != nil {
		c.cancel()
		libraries = append(libraries, (<-c.working).libraries...)
		c.working = nil
	}
	links := c.sockets
	for _, l := range libraries {
		links = append(append(links, l.protocol...), l.all...)
		defer l.file.Close()
	}
	closeAll(links)
	c.libraries, c.sockets = nil, nil
	if c.loaded {
		c.objects.Close()
	}
	c.loaded = false
}
