package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/workload"
)

// Bounds of what is kept; what comes above them is left out.
const (
	maxPods     = 2048 // of this node, with those that ended lately
	maxServices = 16 << 10
	maxSlices   = 16 << 10
	maxZones    = 8 << 10
	lately      = 15 * time.Minute
)

// state is what the sources said so far.
type state struct {
	index *workload.Index
	name  string // of this node

	mu       sync.Mutex
	pods     map[string]*pod // by UID
	services map[string]*service
	slices   map[string]*slice // by namespace and name
	left     map[string][]left // by service, the last ones that were behind it
	zones    map[string]string // by node
	// endpointsKnown says that the endpoints of all services were read.
	endpointsKnown bool
	node           observe.KubeNode
}

func newState(x *workload.Index, node string) *state {
	return &state{index: x, name: node, pods: map[string]*pod{}, services: map[string]*service{}, slices: map[string]*slice{}, left: map[string][]left{}, zones: map[string]string{}}
}

// rank is how much a source knows of a pod.
var rank = map[workload.Source]int{workload.CRI: 1, workload.Kubelet: 2, workload.Pods: 3}

// podSaid takes what a source says of a pod of this node. gone is when it was found to be
// no more; zero while it is there.
func (s *state) podSaid(src workload.Source, p *pod, now, gone time.Time) {
	if p.UID == "" || p.Name == "" {
		return
	}
	p.rank, p.gone = rank[src], gone
	p.node = cmp.Or(p.node, s.name)
	s.mu.Lock()
	before := s.pods[p.UID]
	zone := s.zones[p.node]
	switch {
	case before == nil && len(s.pods) >= maxPods:
		s.mu.Unlock()
		return
	case before == nil || p.rank >= before.rank:
		s.pods[p.UID] = p
	case !gone.IsZero() && before.gone.IsZero():
		before.gone = gone
	}
	s.mu.Unlock()
	s.claim(src, p, zone, now, before)
}

// claim tells the index whose the pod's containers and addresses are.
func (s *state) claim(src workload.Source, p *pod, zone string, now time.Time, before *pod) {
	over := p.gone
	if !p.ended.IsZero() && (over.IsZero() || p.ended.Before(over)) {
		over = p.ended
	}
	from := p.from
	if from.IsZero() || from.After(now) {
		from = now // nobody says since when: since it was seen
	}
	who := p.workload(zone)
	c := &workload.Claim{Source: src, UID: p.UID, Who: who, From: from.UnixNano(), To: until(from, over)}
	if !p.HostNetwork {
		for _, addr := range p.addrs {
			s.index.Address(addr, c)
		}
		if before != nil {
			for _, addr := range before.addrs { // it has others now
				if !slices.Contains(p.addrs, addr) && len(p.addrs) > 0 {
					s.index.DropAddress(addr, src, s.index.TagOf(p.UID), now.UnixNano())
				}
			}
		}
	}
	if before != nil {
		for _, r := range before.past {
			if !slices.ContainsFunc(p.past, func(o past) bool { return o.id == r.id }) {
				s.index.DropContainer(r.id, src, s.index.TagOf(p.UID), now.UnixNano())
			}
		}
	}
	for _, r := range p.past {
		from := r.from
		if from.Unix() <= 0 || from.After(now) {
			from = now
		}
		c := &workload.Claim{Source: src, UID: p.UID, Who: who, From: from.UnixNano()}
		c.Who.Container = r.name
		switch {
		case r.terminated:
			// Its id is nobody else's: requests that end with it are still its own.
			c.To = until(from, r.to.Add(2*time.Second))
		case !p.gone.IsZero():
			c.To = until(from, p.gone.Add(2*time.Second))
		}
		s.index.Container(r.id, c)
	}
}

// until is the end of a claim; 0 when there is none.
func until(from, to time.Time) int64 {
	if to.IsZero() {
		return 0
	}
	return max(to.UnixNano(), from.UnixNano()+1)
}

// listed takes all that a source lists now, and what it listed before, which was so until
// a time.
func (s *state) listed(src workload.Source, before, now map[string]*pod, known, at time.Time) {
	for _, p := range now {
		s.podSaid(src, p, at, time.Time{})
	}
	for uid, p := range before {
		if now[uid] == nil {
			s.podGone(src, p, known, at)
		}
	}
}

// podGone is a pod that a source does not list any more. When it ended is not known: only
// until when it was there.
func (s *state) podGone(src workload.Source, p *pod, known, now time.Time) {
	s.mu.Lock()
	best := s.pods[p.UID]
	s.mu.Unlock()
	if best != nil && best.rank > rank[src] {
		s.unclaim(src, p, known)
		return
	}
	again := *p
	s.podSaid(src, &again, now, known)
}

func (s *state) unclaim(src workload.Source, p *pod, at time.Time) {
	tag := s.index.TagOf(p.UID)
	for _, addr := range p.addrs {
		s.index.DropAddress(addr, src, tag, at.UnixNano())
	}
	for _, r := range p.past {
		s.index.DropContainer(r.id, src, tag, at.UnixNano())
	}
}

// sweep forgets what ended long ago.
func (s *state) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, p := range s.pods {
		if !p.gone.IsZero() && now.Sub(p.gone) > lately {
			delete(s.pods, uid)
		}
	}
	for key, list := range s.left {
		if now.Sub(list[len(list)-1].at) > lately {
			delete(s.left, key)
		}
	}
}

// addr is an address that an object names; invalid where it is none.
func addr(s string) netip.Addr {
	a, _ := netip.ParseAddr(s)
	return a
}

// printableLine is a text of others in one line.
func printableLine(s string, limit int) string {
	return strings.TrimSpace(printable.Name(s, limit))
}
