package web

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// pathSlack is how far apart two measurements of one moment may be: the split of a
// request ends when the call that sends its answer begins, its ledger when the
// answer was sent (observe.ServerSplit.Fit), and a store keeps microseconds.
const pathSlack = 100_000 // ns

// links joins records of this host that are of one request: the two ends of a
// connection, and a request with the calls that were made for it. What is not
// certain stays apart.
type links struct {
	all    []store.Request // in order of their start
	twin   []int           // the same request as the other end of its connection saw it; -1: none
	parent []int           // of a call: the served request that it was made for; -1: not known
	calls  map[int][]int   // of a served request
	// alone says that no request of its process but this one can have been in
	// hand during all of a call.
	alone func(all []store.Request, served, call *store.Request) bool

	inHand map[int]*inHand // served requests, by process
	pairs  int             // of records that were compared
}

// mostPairs bounds the time that joining takes: where requests hang, each of a process
// may be the one that each of its calls was made for. They are some tenths of a second.
const mostPairs = 10_000_000

// tooMany says that too many pairs would have to be compared. What was found until then
// is not taken: it is certain only when everything was compared.
func (p *links) tooMany() bool { return p.pairs > mostPairs }

func newLinks(all []store.Request, alone func(all []store.Request, served, call *store.Request) bool) *links {
	slices.SortStableFunc(all, func(a, b store.Request) int { return cmp.Compare(a.StartNS, b.StartNS) })
	// A record that amends another one comes after it, and takes its place.
	last := map[string]int{}
	for i := range all {
		last[requestID(&all[i])] = i
	}
	kept := all[:0]
	for i := range all {
		if last[requestID(&all[i])] == i {
			kept = append(kept, all[i])
		}
	}
	p := &links{all: kept, calls: map[int][]int{}, alone: alone}
	p.twin, p.parent = slices.Repeat([]int{-1}, len(kept)), slices.Repeat([]int{-1}, len(kept))
	p.inHand = requestsInHand(kept)
	p.joinEnds()
	p.joinCalls()
	return p
}

// single says that a record tells of one request alone, with times of its own.
func single(r *store.Request) bool {
	return r.Requests <= 1 && r.Flags&(observe.FlagOverlapped|observe.FlagMultiplexed|observe.FlagUnfinished) == 0
}

func endNS(r *store.Request) int64 { return r.StartNS + r.TotalNS() }

// pair is a connection as its client names it.
type pair struct{ client, server netip.AddrPort }

func pairOf(r *store.Request) pair {
	local, peer := plain(r.Local), plain(r.Peer)
	if r.Side == observe.Called {
		return pair{local, peer}
	}
	return pair{peer, local}
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// sameRequest says whether a called and a served record of one pair of addresses
// are two views of one request. A connection has one request at a time (single),
// so its number, the bytes of both ways and the moment tell which.
func sameRequest(called, served *store.Request) bool {
	if called.BytesOut != served.BytesIn || called.BytesIn != served.BytesOut {
		return false
	}
	// Where a connection is older than the recording its ends may count differently.
	if called.Seq != served.Seq && (called.Flags|served.Flags)&observe.FlagPreexisting == 0 {
		return false
	}
	// It is read after it was sent, and the answer sent before it came.
	read := served.StartNS + beforeServer(served)
	if read+pathSlack < called.StartNS || read > endNS(called)+pathSlack {
		return false
	}
	return served.FirstByte == 0 || called.FirstByte == 0 || served.StartNS+served.FirstByte <= called.StartNS+called.FirstByte+pathSlack
}

// beforeServer is how long it took until a served request was read.
func beforeServer(r *store.Request) int64 {
	return r.Ledger[observe.AcceptWait] + r.Ledger[observe.TLS] + r.Ledger[observe.Upload] + r.Ledger[observe.RecvWait]
}

// joinEnds finds both ends of a request. Two pairs of containers may use the same
// addresses, each in networks of their own, and many requests may look alike: where
// an end fits two others, neither is taken.
func (p *links) joinEnds() {
	served := map[pair][]int{}
	for i := range p.all {
		if r := &p.all[i]; r.Side == observe.Served && single(r) {
			served[pairOf(r)] = append(served[pairOf(r)], i)
		}
	}
	fits := newMatches()
	for i := range p.all {
		r := &p.all[i]
		if r.Side != observe.Called || !single(r) {
			continue
		}
		for _, j := range served[pairOf(r)] {
			if p.pairs++; sameRequest(r, &p.all[j]) {
				fits.add(i, j)
			}
		}
		if p.tooMany() {
			return
		}
	}
	fits.unique(func(called, served int) { p.twin[called], p.twin[served] = served, called })
}

// joinCalls finds the calls that were made for a request: those that its process
// sent after it had read the request, and whose answer it had when it answered. That
// alone does not do, for a process may have many requests in hand. It is certain
//
//   - where the kernel, which followed the request from thread to thread, measured for
//     it the very time that one call took (server.call), and that fits no other
//     request and no other call;
//   - where no other request of the process can have been in hand meanwhile (alone).
//
// A record that stands for others says that like ones were left out: then the one
// that really belongs here may be among those, and nothing is joined.
func (p *links) joinCalls() {
	calls := map[int][]int{} // by process
	for i := range p.all {
		if r := &p.all[i]; r.Side == observe.Called && r.PID != 0 && single(r) && r.Weight <= 1 {
			calls[r.PID] = append(calls[r.PID], i)
		}
	}
	within, equal := map[int][]int{}, newMatches()
	for i := range p.all {
		r := &p.all[i]
		if r.Side != observe.Served || !r.Followed || r.Split[observe.ServerCall] <= 0 || !single(r) || r.Weight > 1 {
			continue
		}
		mine := calls[r.PID]
		first, _ := slices.BinarySearchFunc(mine, r.StartNS+beforeServer(r)-pathSlack, func(j int, at int64) int { return cmp.Compare(p.all[j].StartNS, at) })
		for _, j := range mine[first:] {
			c := &p.all[j]
			if c.StartNS > endNS(r)+pathSlack {
				break
			}
			if p.pairs++; during(r, c) {
				if !p.others(r, c) {
					within[i] = append(within[i], j)
				}
				if off := c.TotalNS() - r.Split[observe.ServerCall]; off >= -pathSlack && off <= pathSlack {
					equal.add(i, j)
				}
			}
		}
		if p.tooMany() {
			return
		}
	}
	equal.unique(func(served, call int) { p.adopt(served, call) })
	for _, i := range slices.Sorted(maps.Keys(within)) {
		p.joinAlone(i, within[i])
	}
	for _, list := range p.calls {
		slices.Sort(list)
	}
}

func (p *links) adopt(served, call int) {
	p.parent[call] = served
	p.calls[served] = append(p.calls[served], call)
}

// during says whether a call lies in the time in which its process had a request
// in hand, up to the first byte of the answer.
func during(r, c *store.Request) bool {
	answered := endNS(r)
	if r.FirstByte > 0 {
		answered = r.StartNS + r.FirstByte
	}
	return c.StartNS >= r.StartNS+beforeServer(r)-pathSlack && endNS(c) <= answered+pathSlack
}

// joinAlone takes the calls that were made while nothing else was in hand (list), as far
// as the time that the request waited for calls has room for them. A thread that
// is ready again and has no CPU yet no longer waits.
func (p *links) joinAlone(served int, list []int) {
	r := &p.all[served]
	room := r.Split[observe.ServerCall] + r.Split[observe.ServerRunq] + r.Split[observe.ServerThrottled] + pathSlack
	var mine []int
	for _, j := range list {
		if c := &p.all[j]; p.parent[j] < 0 && p.alone(p.all, r, c) {
			mine = append(mine, j)
		}
	}
	var waited, until int64
	both := slices.Concat(p.calls[served], mine)
	slices.Sort(both) // in order of their start
	for _, j := range both {
		c := &p.all[j]
		waited, until = waited+max(endNS(c)-max(c.StartNS, until), 0), max(until, endNS(c))
	}
	if waited > room {
		return
	}
	for _, j := range mine {
		p.adopt(served, j)
	}
}

// inHand is when a process took requests in hand, and when it had answered them: each in
// order.
type inHand struct{ began, ended []int64 }

func requestsInHand(all []store.Request) map[int]*inHand {
	of := map[int]*inHand{}
	for i := range all {
		if r := &all[i]; r.Side == observe.Served {
			h := of[r.PID]
			if h == nil {
				h = &inHand{}
				of[r.PID] = h
			}
			h.began, h.ended = append(h.began, r.StartNS), append(h.ended, endNS(r))
		}
	}
	for _, h := range of {
		slices.Sort(h.ended)
	}
	return of
}

// others says whether another request is known that the process of r had in hand during
// its call c.
func (p *links) others(r, c *store.Request) bool {
	h := p.inHand[c.PID]
	began, _ := slices.BinarySearch(h.began, endNS(c)+1)
	ended, _ := slices.BinarySearch(h.ended, c.StartNS+1)
	n := began - ended
	if r.StartNS <= endNS(c) && endNS(r) > c.StartNS {
		n--
	}
	return n > 0
}

// matches are pairs of which those count whose both sides fit nothing else: what fits
// several is severalFit.
type matches struct{ of, back map[int]int }

const severalFit = -1

func newMatches() *matches { return &matches{map[int]int{}, map[int]int{}} }

func (m *matches) add(a, b int) {
	fit := func(in map[int]int, k, v int) {
		if _, known := in[k]; known {
			v = severalFit
		}
		in[k] = v
	}
	fit(m.of, a, b)
	fit(m.back, b, a)
}

func (m *matches) unique(f func(a, b int)) {
	for a, b := range m.of {
		if b != severalFit && m.back[b] != severalFit {
			f(a, b)
		}
	}
}

// hop is one step of a request's path: a call, the same as the process that answers
// it saw it, or only one of the two.
type hop struct {
	depth          int
	called, served *store.Request
}

// maxHops is how many steps of a path are listed.
const maxHops = 16

// top is the record that all of a request's path hangs on.
func (p *links) top(i int) int {
	for range maxHops {
		up := p.parent[i]
		if p.all[i].Side == observe.Served {
			up = p.twin[i]
		}
		if up < 0 {
			return i
		}
		i = up
	}
	return i
}

// hops are a path from its top, each step before those that were made for it, which
// are in order of their beginning; in are all records that have part in it.
func (p *links) hops(top int) (list []hop, in []int) {
	var walk func(i, depth int)
	walk = func(i, depth int) {
		if len(list) == maxHops {
			return
		}
		h, served := hop{depth: depth}, i
		in = append(in, i)
		if r := &p.all[i]; r.Side == observe.Called {
			h.called, served = r, p.twin[i]
			if served >= 0 {
				in = append(in, served)
			}
		}
		if served >= 0 {
			h.served = &p.all[served]
		}
		list = append(list, h)
		if served >= 0 {
			for _, j := range p.calls[served] {
				walk(j, depth+1)
			}
		}
	}
	walk(top, 0)
	return list, in
}
