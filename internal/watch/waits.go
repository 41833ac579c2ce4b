package watch

import (
	"cmp"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/wait"
)

const (
	waitsEvery = 50 * time.Millisecond
	// waitsShare is the share of a CPU that looking at threads may take, after a
	// credit for the first looks.
	waitsShare  = 0.01
	waitsCredit = 80 * time.Millisecond
	// glanceShare is what looks may take of that while more than the share was spent:
	// they follow nothing then, and without them nobody would see the rest of the window.
	glanceShare = waitsShare / 2
	// slowRequest is from when on the waits during a request are of interest.
	slowRequest = 25 * time.Millisecond
	// slowLately is for how long after one threads are looked at as often as can
	// be, where that is otherwise done rarely.
	slowLately = 2 * time.Second

	maxSlowRequests = 4096 // that are kept, the slowest, each kind
	maxWaitPIDs     = 256  // processes whose threads are looked at
	waitPIDsAtOnce  = 64   // in one look
)

// waits samples what threads of the services wait for.
type waits struct {
	requests *requests
	earlier  *earlier

	sampler  *wait.Sampler
	slow     *slowRequests // of requests
	interval time.Duration // Options.SampleInterval
	pids     []int
	self     int // a process that is not looked at, 0: none
	left     int // processes that there was no room for
	halt     chan struct{}
	done     sync.WaitGroup
}

// begin begins to look at the threads of what serves.
func (w *waits) begin(s *session) error {
	w.slow, w.interval = w.requests.slow, s.opt.sampleInterval()
	if s.opt.Requests != nil {
		// A recorder serves its page, and waits in the kernel until programs of the
		// window before are freed: that is no service's trouble.
		w.self = os.Getpid()
	}
	w.start(s.fs, s.serving)
	return nil
}

// start looks at the threads of processes, but for self.
func (w *waits) start(fs host.FS, serving []int) {
	w.sampler, w.halt = wait.NewSampler(wait.NewReader(fs)), make(chan struct{})
	w.pids = slices.DeleteFunc(slices.Clone(serving), func(pid int) bool { return pid == w.self })
	w.left = max(len(w.pids)-maxWaitPIDs, 0)
	w.pids = w.pids[:len(w.pids)-w.left]
	w.done.Go(w.run)
}

// run is the only one to touch the sampler until it is done.
func (w *waits) run() {
	runtime.LockOSThread() // costs are those of this thread
	defer runtime.UnlockOSThread()
	began := time.Now()
	var spent, least time.Duration
	e := wait.Follow
	for {
		before := host.ThreadCPU()
		w.look(e)
		took := host.ThreadCPU() - before
		spent += took
		if least == 0 || e == wait.Glance {
			least = took
		}
		least = min(least, took)
		// What it costs decides when it may look again.
		due := w.interval*time.Duration(float64(spent-waitsCredit)/waitsShare) - time.Since(began)
		e = wait.Follow
		if soon := w.interval * time.Duration(float64(least)/glanceShare); soon < due {
			due, e = soon, wait.Glance
		}
		every := waitsEvery
		if w.interval > 1 && !w.slow.lately() {
			every *= w.interval
		}
		select {
		case <-w.halt:
			w.look(wait.Finish)
			return
		case <-time.After(max(every, due)):
		}
	}
}

// look looks at the processes whose turn it is. Where no request is slow nobody asks what
// holds a thread up.
func (w *waits) look(e wait.Effort) {
	w.slow.readers(func(pid int) {
		switch {
		case slices.Contains(w.pids, pid), pid == w.self:
		case len(w.pids) < maxWaitPIDs:
			w.pids = append(w.pids, pid)
		default:
			w.left++
		}
	})
	n := min(len(w.pids), waitPIDsAtOnce)
	if e == wait.Follow && !w.slow.any() {
		e = wait.Glance
	}
	w.sampler.Look(w.pids[:n], e)
	if n < len(w.pids) {
		// The next look begins with those that had no turn.
		w.pids = append(w.pids[n:], w.pids[:n]...)
	}
}

// stop looks for the last time. It may be called again.
func (w *waits) stop(*session) {
	select {
	case <-w.halt:
	default:
		close(w.halt)
	}
	w.done.Wait()
}

// end joins the waits with the slow requests.
func (w *waits) end(s *session) {
	requests, answered := w.slow.list(s)
	if w.sampler.Waiting() {
		requests = append(requests, w.earlier.slow...)
	}
	requests = append(requests, s.lent(requests)...)
	s.out.Waits = w.sampler.Graph(requests, slowRequest, answered)
	s.lose("processes that serve whose threads were not looked at, for there were too many", int64(w.left))
	s.lose("waits of threads that were not kept because room ran out", w.sampler.Lost())
	s.lose("slow requests whose waits were not looked into, for there were too many", w.slow.lost)
}

// slowRequests are the requests of the window that took long. Records come from
// another goroutine than the questions.
type slowRequests struct {
	mu       sync.Mutex
	finished []slowRecord // each every-th of those that were seen
	seen     int
	every    int
	open     map[openKey]slowRecord // by connection and number
	pids     map[int]bool           // that read requests
	fresh    []int
	answered map[int]int64 // when a process gave its last answer, wall clock
	latest   time.Time     // when a slow one was noted
	lost     int64
}

type slowRecord struct {
	pid, tid   int
	netns      uint64
	local      netip.AddrPort
	start, end int64
	queued     int64 // until it was read
	busy       int64
	unread     bool
	followed   int64 // of the time in which it was answered, what is known from thread to thread
	computed   int64 // of that
}

type openKey struct {
	local, peer netip.AddrPort
	netns       uint64
	seq         uint32
}

func newSlowRequests() *slowRequests {
	return &slowRequests{every: 1, open: map[openKey]slowRecord{}, pids: map[int]bool{}, answered: map[int]int64{}}
}

// maxReaders bounds the processes that are remembered to have answered.
const maxReaders = 4096

// note looks at a record. It is called for every request.
func (q *slowRequests) note(r *observe.Request) {
	if r.Side != observe.Served || r.Flags&observe.FlagAmended != 0 {
		return
	}
	total := r.TotalNS()
	unfinished := r.Flags&observe.FlagUnfinished != 0
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.PID != 0 && !q.pids[r.PID] && len(q.pids) < maxReaders {
		q.pids[r.PID] = true
		q.fresh = append(q.fresh, r.PID)
	}
	if !unfinished && r.PID != 0 && (q.answered[r.PID] != 0 || len(q.answered) < maxReaders) {
		q.answered[r.PID] = max(q.answered[r.PID], r.StartNS+total)
	}
	if total < int64(slowRequest) {
		return
	}
	q.latest = time.Now()
	k := openKey{r.Local, r.Peer, r.NetNS, r.Seq}
	rec := slowRecord{
		pid: r.PID, tid: r.TID, netns: r.NetNS, local: r.Local, start: r.StartNS, end: r.StartNS + total,
		queued: r.Ledger[observe.AcceptWait] + r.Ledger[observe.RecvWait],
		busy:   r.Ledger[observe.AcceptWait] + r.Ledger[observe.RecvWait] + r.Ledger[observe.Server] + r.Ledger[observe.Stall],
		unread: unfinished && (r.PID == 0 || r.Ledger[observe.Server]+r.Ledger[observe.Stall] == 0),
	}
	if r.Followed {
		rec.followed, rec.computed = r.Split.Sum()-r.Split[observe.ServerHandoff], r.Split[observe.ServerCPU]
	}
	switch {
	case unfinished:
		if _, known := q.open[k]; known || len(q.open) < maxSlowRequests {
			q.open[k] = rec
		} else {
			q.lost++
		}
		return
	case len(q.open) > 0:
		delete(q.open, k)
	}
	if rec.busy < int64(slowRequest) {
		return
	}
	if q.seen++; q.seen%q.every != 0 {
		q.lost++
		return
	}
	if len(q.finished) == 2*maxSlowRequests {
		// Every other one is left out, from now on too: each stands for as many.
		for i := range maxSlowRequests {
			q.finished[i] = q.finished[2*i+1]
		}
		q.finished, q.every = q.finished[:maxSlowRequests], 2*q.every
		q.lost += maxSlowRequests
		if q.seen%q.every != 0 {
			q.lost++
			return
		}
	}
	q.finished = append(q.finished, rec)
}

// any says whether a request took long, or still does.
func (q *slowRequests) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.finished)+len(q.open) > 0
}

// lately says whether a slow request was noted in the last seconds.
func (q *slowRequests) lately() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.latest) < slowLately
}

// readers visits the processes that were seen to read requests since it was
// called last.
func (q *slowRequests) readers(visit func(pid int)) {
	q.mu.Lock()
	fresh := q.fresh
	q.fresh = nil
	q.mu.Unlock()
	for _, pid := range fresh {
		visit(pid)
	}
}

// list is the slow requests, after the last record, and when a process gave its
// last answer. Those that nobody has read belong to who listens there.
func (q *slowRequests) list(s *session) ([]wait.SlowRequest, func(pid int) time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]wait.SlowRequest, 0, len(q.finished)+len(q.open))
	add := func(k openKey, r *slowRecord, unfinished bool, stands float64) {
		owner := 0
		if r.pid == 0 {
			r.pid = s.listenerOf(r.netns, int(r.local.Port()))
		}
		if r.unread {
			owner = s.unreadOwner(k)
			if owner != 0 {
				r.pid = owner
			}
		}
		read := r.start + r.queued
		// Threads were not looked at before the window.
		if began := s.out.Window.Start.UnixNano(); r.start < began {
			r.start, r.busy = began, min(r.busy, r.end-began)
		}
		if r.pid == 0 || r.busy <= 0 {
			return
		}
		out = append(out, wait.SlowRequest{
			PID: r.pid, TID: r.tid, Owner: owner, From: time.Unix(0, r.start), Read: time.Unix(0, read), To: time.Unix(0, r.end), Busy: time.Duration(r.busy),
			Unfinished: unfinished, Unread: r.unread, Stands: stands,
		})
	}
	for i := range q.finished {
		add(openKey{}, &q.finished[i], false, float64(q.every))
	}
	open := slices.Collect(maps.Keys(q.open))
	slices.SortFunc(open, func(a, b openKey) int {
		return cmp.Or(cmp.Compare(q.open[a].start, q.open[b].start), a.local.Compare(b.local), a.peer.Compare(b.peer))
	})
	for _, k := range open {
		rec := q.open[k]
		add(k, &rec, true, 1)
	}
	return out, func(pid int) time.Time { return time.Unix(0, q.answered[pid]) }
}

// connections are those with a request in progress that a record tells of.
func (q *slowRequests) connections() map[openKey]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[openKey]bool, len(q.open))
	for k := range q.open {
		k.seq = 0
		all[k] = true
	}
	return all
}

// unreadOwner is the process that has accepted a connection on which bytes lie unread;
// 0 when none has, or none is known. Of several that listen at a port the first need
// not be the one that does not read.
func (s *session) unreadOwner(k openKey) int {
	if s.unread == nil {
		s.unread = map[openKey]int{}
		inodes := map[uint64]openKey{}
		for _, sp := range s.spaces {
			// What cannot be read has no owner that is known.
			_ = sp.ns.Queues(func(q *host.QueueSample) {
				if q.Receive > 0 && q.Inode != 0 && q.State != "LISTEN" && len(inodes) < maxSlowRequests {
					inodes[q.Inode] = openKey{local: netip.AddrPortFrom(q.Src.Unmap(), q.SrcPort), peer: netip.AddrPortFrom(q.Dst.Unmap(), q.DstPort), netns: sp.inode}
				}
			})
		}
		for inode, pids := range s.ownersOf(func(inode uint64) bool { _, ok := inodes[inode]; return ok }) {
			if at, ok := inodes[inode]; ok && len(pids) > 0 {
				s.unread[at] = pids[0]
			}
		}
	}
	k.seq = 0
	return s.unread[k]
}

// ownersOf maps sockets to processes, by the cheapest way there is.
func (s *session) ownersOf(wanted func(inode uint64) bool) map[uint64][]int {
	if s.sockets != nil {
		if owners, err := s.sockets.Owners(wanted); err == nil {
			return owners
		}
	}
	owners, _ := s.fs.SocketOwners(s.pids(s.procs))
	return owners
}

// listenerOf is the process that listens at a port, 0 when none is known.
func (s *session) listenerOf(netns uint64, port int) int {
	for i := range s.out.Namespaces {
		ns := &s.out.Namespaces[i]
		if k := s.firstListenerAt(ns, port); ns.Inode == netns && k >= 0 {
			return ns.Listeners[k].PID
		}
	}
	return 0
}

// spaceOf is the network namespace with this inode; nil when it is not watched.
func (s *session) spaceOf(inode uint64) *space {
	for _, sp := range s.allSpaces() {
		if sp.inode == inode {
			return sp
		}
	}
	return nil
}

// lent is the requests again, for the processes that those who answer them call
// over unix sockets.
func (s *session) lent(requests []wait.SlowRequest) []wait.SlowRequest {
	servers := map[string]int{} // by path
	for i := range s.out.Namespaces {
		for j := range s.out.Namespaces[i].Listeners {
			if l := &s.out.Namespaces[i].Listeners[j]; l.Path != "" && l.PID != 0 {
				servers[l.Path] = l.PID
			}
		}
	}
	calls := map[int][]int{} // caller → servers
	note := func(caller int, path string) {
		if server := servers[path]; server != 0 && server != caller && !slices.Contains(calls[caller], server) {
			calls[caller] = append(calls[caller], server)
		}
	}
	for i := range s.out.Connects {
		if c := &s.out.Connects[i]; c.Family == "unix" {
			note(c.PID, c.Path)
		}
	}
	var out []wait.SlowRequest
	for _, r := range requests {
		for _, server := range calls[r.PID] {
			if len(out) == 2*maxSlowRequests {
				return out
			}
			// Which of its threads has it in hand is not known.
			r.PID, r.TID, r.Unread, r.Lent = server, -1, false, true
			out = append(out, r)
		}
	}
	return out
}
