package record

import (
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/store"
)

const (
	// secondEndpoints bounds a second: those beyond are summed up as "other".
	secondEndpoints = 512
	// unnamedFor is how long a connection that has had no request yet waits to
	// be counted, so that it is with those who answer it.
	unnamedFor = 5
)

// moments is a request.Stream, as far as seconds need it.
type moments interface {
	Moment(do func(sums []request.Counters))
}

// seconds sums requests up by endpoint and second.
type seconds struct {
	stream moments
	names  *host.Names
	// The stream's goroutine fills the one while the other is read.
	filling, spare *request.Table
	began          time.Time
	before         []request.Counters
	answers        map[place]answers // who was last seen at an address
	unnamed        map[place]int     // addresses with nothing but connections, and for how many seconds
}

// answers is the process behind an endpoint.
type answers struct {
	pid  int
	comm string
}

func newSeconds(names func() *host.Names, now time.Time) *seconds {
	s := &seconds{names: names(), began: now, answers: map[place]answers{}, unnamed: map[place]int{}}
	master := names().Master // used by the stream's goroutine only
	s.filling, s.spare = request.NewTable(now), request.NewTable(now)
	for _, t := range []*request.Table{s.filling, s.spare} {
		t.Master = master
		t.Limit(secondEndpoints)
	}
	return s
}

// end ends the second at now and gives what was in it. also is done in the same
// moment, while no request is handed out.
func (s *seconds) end(now time.Time, also func()) (at int64, list []store.Second) {
	s.spare.Reset(now)
	var counters []request.Counters
	s.stream.Moment(func(sums []request.Counters) {
		counters = sums
		s.filling, s.spare = s.spare, s.filling
		also()
	})
	at, s.began = s.began.Unix(), now
	grown := request.Since(s.before, counters)
	s.before = s.keepBack(&grown, counters)
	for _, e := range s.spare.Endpoints(now, grown) {
		if e.Requests+e.Unfinished+e.Connections+e.Segments+e.SynRetrans+e.BytesIn == 0 {
			continue // it has a place in the table from before
		}
		list = append(list, s.named(at, e, now))
	}
	return at, list
}

func placeOf(c *request.Counters) place {
	return place{c.Side, c.NetNS, netip.AddrPortFrom(c.Addr.Unmap(), c.Port)}
}

// keepBack takes out of grown the addresses that nothing happened at but
// connections, unless it is known who is there: their requests will tell. It
// gives what the next second is counted from.
func (s *seconds) keepBack(grown *[]request.Counters, counters []request.Counters) []request.Counters {
	kept := (*grown)[:0]
	back := map[place]bool{}
	for _, c := range *grown {
		p := placeOf(&c)
		if _, known := s.answers[p]; !known && c.Requests == 0 && s.unnamed[p] < unnamedFor {
			s.unnamed[p]++
			back[p] = true
			continue
		}
		delete(s.unnamed, p)
		kept = append(kept, c)
	}
	*grown = kept
	if len(back) == 0 {
		return counters
	}
	next := counters[:0:0]
	for _, c := range counters {
		if !back[placeOf(&c)] {
			next = append(next, c)
		}
	}
	for _, c := range s.before {
		if back[placeOf(&c)] {
			next = append(next, c)
		}
	}
	return next
}

// named gives an endpoint its process. Where the records of a second name none,
// as when a connection is only opened, it is the one that was there last.
func (s *seconds) named(at int64, e observe.Endpoint, now time.Time) store.Second {
	p := place{observe.Served, e.NetNS, netip.AddrPort{}}
	if e.Side == observe.Called.String() {
		p.side = observe.Called
	}
	if addr, err := netip.ParseAddr(e.Addr); err == nil {
		p.addr = netip.AddrPortFrom(addr, uint16(e.Port))
		switch {
		case e.PID != 0:
			if len(s.answers) >= maxHabits {
				clear(s.answers) // it is met again
			}
			s.answers[p] = answers{e.PID, e.Comm}
		default:
			e.PID, e.Comm = s.answers[p].pid, s.answers[p].comm
		}
	}
	out := store.Second{At: at, Endpoint: e}
	out.Process = processOf(s.names, e.PID, now.UnixNano())
	if out.Process.Comm == "" {
		out.Process.Comm = e.Comm
	}
	return out
}

// processOf names a process; what is not known is empty.
func processOf(names *host.Names, pid int, at int64) observe.Identity {
	id, _ := names.Of(pid, at)
	return id.Identity
}
