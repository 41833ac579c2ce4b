package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/sense/kube"
	"github.com/slowray/slowray/internal/sense/nat"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/shell"
)

// The formats of a request.
const (
	formatText  = "text"
	formatJSON  = "json"
	formatTCPRT = "tcprt"
)

// requestFormat writes requests in one form.
type requestFormat struct {
	header func(dst []byte, style report.Style) []byte // nil for none
	line   func(dst []byte, r *observe.Request, processOf observe.IdentityOf, peer *observe.Workload, style report.Style) []byte
}

var requestFormats = map[string]requestFormat{
	formatText: {header: report.AppendRequestHeader, line: report.AppendRequestText},
	formatJSON: {line: func(dst []byte, r *observe.Request, processOf observe.IdentityOf, peer *observe.Workload, _ report.Style) []byte {
		return report.AppendRequestJSON(dst, r, processOf, peer)
	}},
	formatTCPRT: {line: func(dst []byte, r *observe.Request, _ observe.IdentityOf, _ *observe.Workload, _ report.Style) []byte {
		return report.AppendTCPRT(dst, r)
	}},
}

const (
	writeEvery = 100 * time.Millisecond // lines are written that did not fill the buffer
	lookEvery  = time.Second            // whether the reader has left, and the source failed
	writeBytes = 64 << 10               // lines are written at once
)

// requestStream writes the requests of a source that pass its filters. Who reads
// them slowly holds the source up, which is its alone, and counts what is lost then.
type requestStream struct {
	src       *request.Stream
	out       io.Writer
	format    requestFormat
	style     report.Style
	processOf observe.IdentityOf
	pods      *kube.Kube // nil where this host is no node
	nat       *nat.Table
	peerPod   observe.Workload // of the request that is written: here, for a line allocates nothing
	stats     *portStats       // nil when the format has none

	ports []int                       // of the end that answers; empty = any
	side  observe.Side                // 0 = both
	peer  netip.Prefix                // invalid = any
	slow  time.Duration               // 0 = any
	ours  func(*observe.Request) bool // nil = any
	trace observe.TraceMatch          // "" = any
	hops  *hops                       // instead of lines; nil = lines
	limit int                         // 0 = none
	gone  func() bool                 // whether the reader has left; nil when that cannot be known
	table *request.Table              // what is written comes to; nil when the format has no summary

	mu      sync.Mutex // of what follows; not held while the source is asked
	buf     []byte
	written int   // requests
	err     error // the first of writing
	pending map[requestKey]*observe.Request
	before  map[requestKey]*observe.Request // what was pending when the end began
}

// requestKey is a request on its connection.
type requestKey struct {
	netns       uint64
	local, peer netip.AddrPort
	seq         uint32
}

// maxPending bounds the requests in progress that are remembered.
const maxPending = 10_000

// run writes until ctx is done, the limit is reached, or the reader has gone;
// only another error of writing, or one of the source, is one.
func (s *requestStream) run(ctx context.Context) error {
	if s.format.header != nil {
		s.buf = s.format.header(s.buf, s.style)
		s.write()
	}
	if s.stats != nil {
		s.stats.begin(time.Now())
	}
	from := s.src.Subscribe(s.add)
	write, look := time.NewTicker(writeEvery), time.NewTicker(lookEvery)
	defer write.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.end(from)
		case <-look.C:
			// Without a request there is no write that would fail.
			if s.gone != nil && s.gone() {
				return nil
			}
			if err := s.src.Err(); err != nil {
				return errors.Join(err, s.end(from))
			}
		case now := <-write.C:
			if s.stats != nil && s.stats.due(now) {
				s.statistics(now)
			}
			if s.writeAll() {
				return s.end(from)
			}
		}
	}
}

// statistics writes those of each port.
func (s *requestStream) statistics(now time.Time) {
	var sums []request.Counters
	if s.stats.whole {
		s.src.Moment(func(all []request.Counters) { sums = all })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = s.stats.append(s.buf, now, sums)
}

// writeAll empties the buffer and says whether no more is to be written.
func (s *requestStream) writeAll() (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
	return s.done()
}

// end takes what the source still has and writes the rest.
func (s *requestStream) end(from *request.Subscription) error {
	// What is still in progress is reported once more now. What is not was
	// ended without an answer that anyone waited for, or its record was lost.
	s.mu.Lock()
	s.pending, s.before = nil, s.pending
	s.mu.Unlock()
	err := from.End() // then none is added any more
	s.mu.Lock()
	if err != nil && len(s.before) > 0 {
		maps.Copy(s.before, s.pending)
		s.pending = s.before
	}
	s.writePending(time.Now().UnixNano())
	s.mu.Unlock()
	if s.stats != nil {
		s.statistics(time.Now())
	}
	s.writeAll()
	if s.err != nil && !errors.Is(s.err, syscall.EPIPE) {
		err = errors.Join(err, s.err)
	}
	return err
}

func (s *requestStream) done() bool {
	return s.err != nil || s.limit > 0 && s.written >= s.limit
}

// add takes one request, if it is one of those that were asked for. One in
// progress comes again when it is over: it waits for that, so that every
// request has one line.
func (s *requestStream) add(r *observe.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done() && s.table == nil ||
		s.side != 0 && r.Side != s.side ||
		len(s.ports) > 0 && !slices.Contains(s.ports, int(endpointOf(r).Port())) ||
		s.peer.IsValid() && !s.peer.Contains(r.Peer.Addr().Unmap()) ||
		s.trace != "" && !s.trace.Has(&r.Trace) ||
		s.ours != nil && !s.ours(r) {
		return
	}
	if r.Flags&observe.FlagUnfinished != 0 && len(s.pending) < maxPending {
		if s.pending == nil {
			s.pending = map[requestKey]*observe.Request{}
		}
		kept := *r
		s.pending[keyOf(r)] = &kept
		return
	}
	if len(s.pending)+len(s.before) > 0 {
		delete(s.pending, keyOf(r))
		delete(s.before, keyOf(r))
	}
	if s.stats != nil {
		s.stats.sums.Add(r)
	}
	s.line(r)
}

// endpointOf is the end that answers.
func endpointOf(r *observe.Request) netip.AddrPort {
	if r.Side == observe.Called {
		return r.Peer
	}
	return r.Local
}

func keyOf(r *observe.Request) requestKey {
	return requestKey{r.NetNS, r.Local, r.Peer, r.Seq}
}

// line writes one request if it is slow enough and there is room. The summary is of all
// requests: a rate of those that were chosen would say nothing of the service.
func (s *requestStream) line(r *observe.Request) {
	if s.table != nil {
		s.table.Add(r)
	}
	if s.done() || s.slow > 0 && r.TotalNS() < int64(s.slow) {
		return
	}
	before := len(s.buf)
	if s.pods != nil {
		end := r.StartNS + r.TotalNS()
		p, _ := s.processOf(r.PID, end)
		s.peerPod = s.pods.PeerOfRequest(&p, r, s.nat)
	}
	if s.hops != nil {
		p, _ := s.processOf(r.PID, r.StartNS+r.TotalNS())
		s.hops.add("", &schema.Request{Request: *r, Process: p, PeerWorkload: s.peerPod})
		s.written++
		return
	}
	s.buf = s.format.line(s.buf, r, s.processOf, &s.peerPod, s.style)
	if len(s.buf) > before {
		s.written++
	}
	s.writeWhenFull()
}

// summary writes what the requests come to, which why says the causes of.
func (s *requestStream) summary(from, to time.Time, why shell.Command) error {
	if s.table == nil || s.err != nil {
		return nil
	}
	err := report.RequestSummary(s.out, s.table.Endpoints(to, nil), to.Sub(from).Seconds(), s.written, why, s.style)
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// writePending writes the requests that are still in progress, oldest first.
// With what the time went since they were last looked at is not known.
func (s *requestStream) writePending(now int64) {
	rest := slices.Collect(maps.Values(s.pending))
	slices.SortFunc(rest, func(a, b *observe.Request) int {
		return cmp.Or(cmp.Compare(a.StartNS, b.StartNS), a.Peer.Compare(b.Peer), cmp.Compare(a.Seq, b.Seq))
	})
	for _, r := range rest {
		r.Ledger[observe.Unaccounted] += max(0, now-r.StartNS-r.TotalNS())
		s.line(r)
	}
}

// closed writes the end of a connection. It is not known whose it was, so
// there is none when one process was asked for.
func (s *requestStream) closed(c *observe.Closed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done() || s.ours != nil || s.peer.IsValid() && !s.peer.Contains(c.Peer.Addr().Unmap()) {
		return
	}
	s.buf = report.AppendTCPRTClosed(s.buf, c)
	s.writeWhenFull()
}

func (s *requestStream) writeWhenFull() {
	if len(s.buf) >= writeBytes {
		s.write()
	}
}

// write empties the buffer. After an error nothing more is written.
func (s *requestStream) write() {
	if len(s.buf) > 0 && s.err == nil {
		_, s.err = s.out.Write(s.buf)
	}
	s.buf = s.buf[:0]
}

// readerGone tells, without writing, whether nobody reads w any more: for a
// pipe without readers poll(2) reports an error.
func readerGone(w io.Writer) func() bool {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	return func() bool {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
	}
}

// portStats writes TCPRT's statistics at an interval.
type portStats struct {
	sums    report.TCPRTStats
	every   time.Duration
	next    time.Time
	whole   bool               // the requests are not filtered: what the kernel counted is theirs
	counted []request.Counters // by the kernel, when it was last asked
}

func newPortStats(every time.Duration, whole bool) *portStats {
	if every == 0 {
		every = defaultStatsEvery
	}
	return &portStats{every: every, whole: whole}
}

func (p *portStats) begin(now time.Time) { p.next = now.Add(p.every) }

// due says whether the time of the statistics has come, once.
func (p *portStats) due(now time.Time) bool {
	if now.Before(p.next) {
		return false
	}
	// After a stop of the machine the intervals in between are not made up for.
	if p.next = p.next.Add(p.every); p.next.Before(now) {
		p.next = now.Add(p.every)
	}
	return true
}

// append appends the statistics; counted is what the kernel has counted by now, if
// that is known.
func (p *portStats) append(dst []byte, now time.Time, counted []request.Counters) []byte {
	for _, c := range request.Since(p.counted, counted) {
		p.sums.AddSegments(c.Side, c.Port, c.Segments, c.Retrans)
	}
	p.counted = counted
	return p.sums.Append(dst, now)
}
