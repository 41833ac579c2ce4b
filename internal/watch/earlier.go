package watch

import (
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/wait"
)

// earlier finds the requests that came in before the window began and had no answer
// when it ended, of which no record tells: of a service that answers nobody any more
// nothing happens for a recorder to see. The sockets know when data came and went last
// (tcpi_last_data_recv and tcpi_last_data_sent of tcp_info, include/uapi/linux/tcp.h).
type earlier struct {
	requests *requests
	waits    *waits

	slow      []wait.SlowRequest  // as waits has them
	endpoints map[endpointKey]int // their places in the observation, once one was asked for
	made      int                 // endpoints that no record tells of
}

// maxEarlierEndpoints bounds the endpoints that are made: a host that calls thousands of
// others has as many.
const maxEarlierEndpoints = 1024

// end joins them with the endpoints of the window.
func (r *earlier) end(s *session) {
	var known map[openKey]bool
	if s.opt.Requests != nil { // it has records of requests that are older than the window
		if !r.waits.sampler.Waiting() {
			return
		}
		known = r.requests.slow.connections()
	}
	window, now := time.Duration(s.out.Window.Seconds*float64(time.Second)), time.Now()
	for i := range s.out.Namespaces {
		ns := &s.out.Namespaces[i]
		sp := s.spaceOf(ns.Inode)
		if sp == nil {
			continue
		}
		ports := newPorts(ns)
		if len(ports.listening) == 0 {
			continue
		}
		// What cannot be read is known from records, or not at all.
		var waiting []host.QueueSample
		_ = sp.ns.Queues(func(q *host.QueueSample) {
			if (q.State == "ESTABLISHED" || q.State == "CLOSE_WAIT") && q.InfoKnown && q.Send == 0 && max(q.LastReceived, q.LastSent) >= window && len(waiting) < maxSlowRequests {
				waiting = append(waiting, *q)
			}
		})
		for i := range waiting {
			q := &waiting[i]
			since := window + time.Since(now)
			l := ports.listening[q.SrcPort]
			switch {
			case l != nil && unanswered(q, since):
				at := openKey{local: netip.AddrPortFrom(q.Src.Unmap(), q.SrcPort), peer: netip.AddrPortFrom(q.Dst.Unmap(), q.DstPort), netns: ns.Inode}
				if known[at] {
					continue
				}
				pid, owner := l.PID, 0
				if q.Receive > 0 {
					if owner = s.unreadOwner(at); owner != 0 {
						pid = owner
					}
				}
				r.wait(s, endpointKey{observe.Served.String(), ns.Inode, q.Src.Unmap().String(), l.Port}, l.PID, q.LastReceived, q.Receive > 0)
				if len(r.slow) < maxSlowRequests {
					r.slow = append(r.slow, wait.SlowRequest{PID: pid, Owner: owner, From: now.Add(-window), To: now, Busy: window, Unfinished: true, Unread: q.Receive > 0})
				}
			case l == nil && waitsForAnswer(q, since):
				at := netip.AddrPortFrom(q.Dst.Unmap(), q.DstPort)
				if pid := ports.callers[at]; pid != 0 {
					r.wait(s, endpointKey{observe.Called.String(), ns.Inode, at.Addr().String(), int(at.Port())}, pid, q.LastSent, false)
				}
			}
		}
	}
}

// unanswered says that what a client sent came in longer ago than since, and nothing was
// sent to it afterwards. A connection on which nobody ever asked (a pool's, a browser's
// that connects ahead) waits for nothing, however long ago its handshake was.
func unanswered(q *host.QueueSample, since time.Duration) bool {
	return !q.NeverReceived && q.LastReceived >= since && (q.NeverSent || q.LastSent > q.LastReceived)
}

// waitsForAnswer is the same at the end that asked.
func waitsForAnswer(q *host.QueueSample, since time.Duration) bool {
	return !q.NeverSent && q.Receive == 0 && q.LastSent >= since && (q.NeverReceived || q.LastSent < q.LastReceived)
}

// ports is who has which sockets of a network namespace.
type ports struct {
	listening map[uint16]*observe.Listener // with clients
	callers   map[netip.AddrPort]int       // a process that calls there
}

func newPorts(ns *observe.NetNS) ports {
	p := ports{map[uint16]*observe.Listener{}, map[netip.AddrPort]int{}}
	for i := range ns.Listeners {
		if l := &ns.Listeners[i]; l.Port != 0 && l.Clients > 0 && p.listening[uint16(l.Port)] == nil {
			p.listening[uint16(l.Port)] = l
		}
	}
	for i := range ns.Sockets {
		g := &ns.Sockets[i]
		addr, err := netip.ParseAddr(g.Remote)
		if g.Side == observe.Called.String() && err == nil && len(g.PIDs) > 0 {
			p.callers[netip.AddrPortFrom(addr.Unmap(), uint16(g.Port))] = g.PIDs[0]
		}
	}
	return p
}

// wait counts a request that waits since age, at an endpoint that is made where no
// record tells of it.
func (r *earlier) wait(s *session, at endpointKey, pid int, age time.Duration, unread bool) {
	if r.endpoints == nil {
		r.endpoints = make(map[endpointKey]int, len(s.out.Endpoints))
		for i := range s.out.Endpoints {
			e := &s.out.Endpoints[i]
			r.endpoints[endpointKey{e.Side, e.NetNS, e.Addr, e.Port}] = i
		}
	}
	i, ok := r.endpoints[at]
	if !ok {
		if r.made >= maxEarlierEndpoints {
			return
		}
		r.made++
		i = len(s.out.Endpoints)
		r.endpoints[at] = i
		s.out.Endpoints = append(s.out.Endpoints, observe.Endpoint{Side: at.side, NetNS: at.netns, Addr: at.addr, Port: at.port, PID: pid})
	}
	e := &s.out.Endpoints[i]
	if e.Earlier == nil {
		e.Earlier = &observe.Earlier{}
	}
	e.Earlier.Requests++
	if unread {
		e.Earlier.Unread++
	}
	e.Earlier.OldestNS = max(e.Earlier.OldestNS, age.Nanoseconds())
}

type endpointKey struct {
	side  string
	netns uint64
	addr  string
	port  int
}
