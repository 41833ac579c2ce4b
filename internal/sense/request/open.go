package request

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// maxOpen bounds the unfinished requests that are kept.
const maxOpen = 8192

// openRequests are the requests that were still going on when slowray looked
// last. Each is reported again and again until it ends or its connection takes
// the next one, so only the latest of a connection counts.
type openRequests struct {
	byConn map[connection]*openRequest
}

type connection struct {
	local, peer netip.AddrPort
	netns       uint64
	stream      uint32 // HTTP/2: the request's number; otherwise a connection has one at a time
}

type openRequest struct {
	endpoint key
	req      observe.Request
	label    string
}

func newOpenRequests() *openRequests {
	return &openRequests{byConn: map[connection]*openRequest{}}
}

func connectionOf(r *observe.Request) connection {
	c := connection{local: r.Local, peer: r.Peer, netns: r.NetNS}
	if r.Flags&observe.FlagMultiplexed != 0 {
		c.stream = r.Seq
	}
	return c
}

func (o *openRequests) any() bool { return len(o.byConn) > 0 }

func (o *openRequests) put(endpoint key, r *observe.Request) {
	c := connectionOf(r)
	e := o.byConn[c]
	if e == nil {
		if len(o.byConn) >= maxOpen {
			return
		}
		e = new(openRequest)
		o.byConn[c] = e
	}
	if e.req.Seq != r.Seq || len(e.label) != min(len(r.Label), maxLabel) {
		e.label = string([]byte(r.Label[:min(len(r.Label), maxLabel)]))
	}
	e.endpoint, e.req = endpoint, *r
	e.req.Label = e.label
}

// end forgets the request of a connection that reported one as finished. A
// request left over from an earlier connection between the same ports ends too.
func (o *openRequests) end(r *observe.Request) {
	c := connectionOf(r)
	if e := o.byConn[c]; e != nil && (r.Seq >= e.req.Seq || r.StartNS > e.req.StartNS) {
		delete(o.byConn, c)
	}
}

// forget drops those that were not reported since a time: they ended, and the
// record of it was lost.
func (o *openRequests) forget(since int64) {
	for c, e := range o.byConn {
		if e.req.StartNS+e.req.TotalNS() < since {
			delete(o.byConn, c)
		}
	}
}

func (o *openRequests) merge(other *openRequests) {
	for _, e := range other.byConn {
		o.put(e.endpoint, &e.req)
	}
}

func (o *openRequests) reset() { clear(o.byConn) }
