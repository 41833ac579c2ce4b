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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
)

// requestSource hands out requests as they end. The methods are those of
// request.Recorder, but for what is told of losses and connections.
type requestSource interface {
	Poll(each func(*observe.Request)) int
	Flush() error    // hand out what is complete on idle connections
	FlushAll() error // the same, for the last time
	OnClosed(each func(*report.ClosedConnection))
	Segments(each func(side observe.Side, port uint16, segments, retrans uint64))
	Losses() sourceLosses
	Close()
}

// sourceLosses is how many requests have no record, and why.
type sourceLosses struct {
	lost      uint64   // the buffer was full
	sampled   uint64   // the governor let them be counted only
	unwatched uint64   // connections, for want of memory
	missed    uint64   // events that the kernel kept from the programs
	missing   []string // what the kernel cannot show, one sentence each
}

// The formats of a request.
const formatTCPRT = "tcprt"

// requestFormat writes requests in one form.
type requestFormat struct {
	header func(dst []byte, style report.Style) []byte // nil for none
	line   func(dst []byte, r *observe.Request, processOf observe.IdentityOf, style report.Style) []byte
}

var requestFormats = map[string]requestFormat{
	"text": {header: report.AppendRequestHeader, line: report.AppendRequestText},
	"json": {line: func(dst []byte, r *observe.Request, processOf observe.IdentityOf, _ report.Style) []byte {
		return report.AppendRequestJSON(dst, r, processOf)
	}},
	formatTCPRT: {line: func(dst []byte, r *observe.Request, _ observe.IdentityOf, _ report.Style) []byte {
		return report.AppendTCPRT(dst, r)
	}},
}

// How often a stream does what.
const (
	pollEvery  = 20 * time.Millisecond  // the source is drained
	writeEvery = 100 * time.Millisecond // lines are written that did not fill the buffer
	flushEvery = time.Second            // idle connections are asked for what is complete
	writeBytes = 64 << 10               // lines are written at once
)

// requestStream writes the requests of a source that pass its filters.
type requestStream struct {
	src       requestSource
	out       io.Writer
	format    requestFormat
	style     report.Style
	processOf observe.IdentityOf
	stats     *portStats // nil when the format has none

	peer  netip.Prefix                // invalid = any
	slow  time.Duration               // 0 = any
	ours  func(*observe.Request) bool // nil = any
	limit int                         // 0 = none
	gone  func() bool                 // whether the reader has left; nil when that cannot be told

	buf     []byte
	written int   // requests
	err     error // the first of writing
	pending map[requestKey]*observe.Request
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
		s.src.OnClosed(s.closed)
		s.stats.begin(time.Now())
	}
	poll, write, flush := time.NewTicker(pollEvery), time.NewTicker(writeEvery), time.NewTicker(flushEvery)
	defer poll.Stop()
	defer write.Stop()
	defer flush.Stop()
	for !s.done() {
		var err error
		select {
		case <-ctx.Done():
			return s.end()
		case <-poll.C:
			s.src.Poll(s.add)
		case <-flush.C:
			// Without a request there is no write that would fail.
			if s.gone != nil && s.gone() {
				return nil
			}
			err = s.src.Flush()
		case now := <-write.C:
			if s.stats != nil {
				s.buf = s.stats.appendDue(s.buf, now)
			}
			s.write()
		}
		if err != nil {
			return errors.Join(err, s.end())
		}
	}
	return s.end()
}

// end takes what the source still has and writes the rest.
func (s *requestStream) end() error {
	// What is still in progress is told of once more now. What is not was
	// ended without an answer that anyone waited for, or its record was lost.
	before := s.pending
	s.pending = nil
	err := s.src.FlushAll()
	if err != nil {
		s.pending = before
	}
	s.src.Poll(s.add)
	s.writePending(time.Now().UnixNano())
	if s.stats != nil {
		s.buf = s.stats.append(s.buf, time.Now())
	}
	s.write()
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
	if s.done() ||
		s.peer.IsValid() && !s.peer.Contains(r.Peer.Addr().Unmap()) ||
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
	if len(s.pending) > 0 {
		delete(s.pending, keyOf(r))
	}
	if s.stats != nil {
		s.stats.sums.Add(r)
	}
	s.line(r)
}

func keyOf(r *observe.Request) requestKey {
	return requestKey{r.NetNS, r.Local, r.Peer, r.Seq}
}

// line writes one request if it is slow enough.
func (s *requestStream) line(r *observe.Request) {
	if s.slow > 0 && r.TotalNS() < int64(s.slow) {
		return
	}
	before := len(s.buf)
	s.buf = s.format.line(s.buf, r, s.processOf, s.style)
	if len(s.buf) > before {
		s.written++
	}
	s.writeWhenFull()
}

// writePending writes the requests that are still in progress, oldest first.
// With what the time went since they were last looked at is not known.
func (s *requestStream) writePending(now int64) {
	rest := slices.Collect(maps.Values(s.pending))
	slices.SortFunc(rest, func(a, b *observe.Request) int {
		return cmp.Or(cmp.Compare(a.StartNS, b.StartNS), a.Peer.Compare(b.Peer), cmp.Compare(a.Seq, b.Seq))
	})
	for _, r := range rest {
		if s.done() {
			return
		}
		r.Ledger[observe.Unaccounted] += max(0, now-r.StartNS-r.TotalNS())
		s.line(r)
	}
}

// closed writes the end of a connection. It is not known whose it was, so
// there is none when one process was asked for.
func (s *requestStream) closed(c *report.ClosedConnection) {
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
	sums  report.TCPRTStats
	every time.Duration
	next  time.Time
	src   requestSource // for exact losses; nil when the requests are filtered
}

func newPortStats(every time.Duration, src requestSource, whole bool) *portStats {
	if every == 0 {
		every = defaultStatsEvery
	}
	p := &portStats{every: every}
	if whole {
		p.src = src
	}
	return p
}

func (p *portStats) begin(now time.Time) { p.next = now.Add(p.every) }

// appendDue appends the statistics when their time has come.
func (p *portStats) appendDue(dst []byte, now time.Time) []byte {
	if now.Before(p.next) {
		return dst
	}
	// After a stop of the machine the intervals in between are not made up for.
	if p.next = p.next.Add(p.every); p.next.Before(now) {
		p.next = now.Add(p.every)
	}
	return p.append(dst, now)
}

func (p *portStats) append(dst []byte, now time.Time) []byte {
	if p.src != nil {
		p.src.Segments(p.sums.AddSegments)
	}
	return p.sums.Append(dst, now)
}
