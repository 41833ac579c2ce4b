package watch

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/connect"
	"github.com/slowray/slowray/internal/sense/nat"
	"github.com/slowray/slowray/internal/sense/request"
)

// sharedEndpoints bounds the endpoints of a window that takes part in a recording:
// that goes on for days, in little memory (40 KB each).
const sharedEndpoints = 1024

// requests records the requests of the window and sums them up meanwhile.
type requests struct {
	databases *databases

	stream *request.Stream
	begun  atomic.Pointer[request.Stream] // the same, for others than the session
	own    bool                           // the stream is this window's
	sub    *request.Subscription
	table  *request.Table // the stream's alone until the subscription has ended
	slow   *slowRequests
	nat    *nat.Table // the window's own; nil where it has one of others
}

// begin begins to record, or joins a recording.
func (q *requests) begin(s *session) error {
	q.stream, q.own, q.slow = s.opt.Requests, s.opt.Requests == nil, newSlowRequests()
	if q.own {
		var err error
		if q.stream, err = request.StartStream(request.Options{Split: true, Budget: s.opt.Budget}); err != nil {
			return err
		}
	}
	q.begun.Store(q.stream)
	q.table = request.NewTable(time.Now())
	names := s.fs.Names()
	names.Gone = q.stream.Caller
	q.table.Master = names.Master
	if q.table.Destination = s.opt.NAT.Destination; s.opt.NAT == nil {
		q.nat = nat.New(s.fs)
		q.table.Destination = q.nat.Destination
	}
	if !q.own {
		q.table.Limit(sharedEndpoints)
	}
	q.sub = q.stream.Subscribe(q.add)
	return nil
}

// narrowed says that less is done than could be, to stay within the budget.
func (q *requests) narrowed() bool {
	stream := q.begun.Load()
	if stream == nil {
		return false
	}
	stats := stream.Stats()
	return stats.Weight > 1 || stats.Split > 1
}

// add counts a request, and keeps what its waits are joined by.
func (q *requests) add(r *observe.Request) {
	q.table.Add(r)
	q.slow.note(r)
	q.databases.kept.note(r)
}

// stop takes what is left and gives the sums of the window.
func (q *requests) stop(s *session) {
	end := time.Now()
	if err := q.sub.End(); err != nil {
		s.partialGap(observe.KindRequests, 0, "requests on idle connections", err)
	}
	s.out.Endpoints = q.table.Endpoints(end, q.sub.Counters())
	stats := q.sub.Stats()
	for i := range s.out.Endpoints {
		e := &s.out.Endpoints[i]
		for _, pid := range append([]int{e.PID}, e.PIDs...) {
			e.TLSLibrary = cmp.Or(e.TLSLibrary, stats.Opaque[pid])
		}
	}
	s.lose(observe.LossSampled, int64(stats.Sampled))
	s.lose("requests counted without a record of their own, because the ring was full", int64(stats.Lost))
	s.lose(observe.LossEstimated, int64(stats.LeftOut))
	s.lose("connections that could not be watched because kernel memory ran out", int64(stats.Connections))
	s.lose("connections counted under \"other\" because there were too many addresses", int64(stats.OtherEndpoints))
	s.lose("events of connections that the kernel kept from slowray, which was at work on the same CPU: requests may lack a part", int64(stats.Missed))
	s.lose("requests that were not followed from thread to thread: no kernel memory, or over 20,000 connections", int64(stats.Unfollowed))
	s.lose("requests of HTTP/2, over 128 at once on a connection, or connections, over 1,024 at once, that were not told apart", int64(stats.Streams))
	s.lose("connections under TLS that were taken for another one for a while", int64(stats.Mistaken))
	s.lose(observe.LossFrames, int64(stats.Frames))
	s.lose(observe.LossUntaken, int64(stats.Untaken))
	for _, what := range stats.Missing {
		s.partialGap(observe.KindRequests, 0, "", fmt.Errorf("%s", what))
	}
}

// handshakes are those completed in the window, after stop; nil where nobody counted them.
func (q *requests) handshakes() *connect.Handshakes {
	if q.begun.Load() == nil {
		return nil
	}
	h := &connect.Handshakes{}
	for _, c := range q.sub.Opened() {
		h.Add(c.Side == observe.Served, c.NetNS, c.Addr, int(c.Port), c.Connections)
	}
	return h
}

func (q *requests) close(*session) {
	_ = q.sub.End()
	q.nat.Close()
	if q.own {
		q.stream.Close()
	}
}
