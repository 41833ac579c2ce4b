package workload

import (
	"hash/maphash"
	"math"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// Source is who made a claim.
type Source uint8

// The sources.
const (
	CRI     Source = iota // the container runtime
	Kubelet               // the kubelet of this node
	Pods                  // the API server, of the pods of this node
	Slices                // the API server, of the endpoints of services
	Lookups               // the API server, of single pods that were asked for
	Services
	numSources
)

// Claim says that a key belonged to somebody for some time. Claims of one UID for a key
// that overlap are one: it began with the earliest of them and ended with the first end.
type Claim struct {
	Source Source
	UID    string // of the pod or service
	Who    observe.Workload
	From   int64 // wall clock, ns since 1970
	// To is when it ended, exclusive; 0 where that is not known: it lasts for as long as
	// the source would know better, see Index.Horizon.
	To int64
	// Leased says that To is only how far the source looked: it may be claimed on.
	Leased bool
}

// Limits bound an Index.
type Limits struct {
	Spans int           // of keys; what comes above them is left out and counted
	Bytes int           // of names
	Keep  time.Duration // how long after its end a span is known
}

// DefaultLimits are enough for the addresses of the largest clusters that Kubernetes
// supports (150,000 pods), in under 20 MB.
var DefaultLimits = Limits{Spans: 192 << 10, Bytes: 4 << 20, Keep: 15 * time.Minute}

// Index knows who had a key when. Its zero value is not ready: New. It may be used by
// several goroutines.
type Index struct {
	limits Limits
	seed   maphash.Seed

	mu         sync.Mutex
	v4         map[[4]byte]uint32 // the span that began last
	v6         map[[16]byte]uint32
	containers map[string]uint32
	spans      slab
	texts      pool[string]
	owners     pool[owner]
	places     pool[place]
	textBytes  int
	expanded   int
	horizon    [numSources]int64
	swept      int64 // when what is over was forgotten last
	stats      Stats
}

// Stats count what an Index holds.
type Stats struct {
	Spans   int    `json:"spans"`
	LeftOut uint64 `json:"left_out,omitempty"` // claims for which there was no room
}

// New is an empty index.
func New(l Limits) *Index {
	x := &Index{limits: l, seed: maphash.MakeSeed(), v4: map[[4]byte]uint32{}, v6: map[[16]byte]uint32{}, containers: map[string]uint32{}}
	for s := range x.horizon {
		x.horizon[s] = math.MaxInt64
	}
	return x
}

// Horizon says until when a source knows whether what it claimed without an end goes on:
// a time, or Always while it would say so at once.
func (x *Index) Horizon(s Source, until int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.horizon[s] = until
}

// Always is the horizon of a source that tells of an end when there is one.
const Always = math.MaxInt64

// Address takes a claim for an address. Loopback and link-local addresses are everybody's:
// they are nobody's here.
func (x *Index) Address(addr netip.Addr, c *Claim) {
	if addr = addr.Unmap(); !addr.IsGlobalUnicast() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if addr.Is4() {
		claim(x, x.v4, addr.As4(), c)
	} else {
		claim(x, x.v6, addr.As16(), c)
	}
}

// Container takes a claim for the id of a container, shortened as in observe.Identity.
func (x *Index) Container(id string, c *Claim) {
	if id == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	claim(x, x.containers, id, c)
}

// Tag stands for a UID.
type Tag uint32

// TagOf is the tag of a UID in this index.
func (x *Index) TagOf(uid string) Tag { return Tag(maphash.String(x.seed, uid)) }

// DropAddress takes back what a source claimed without an end: from at on it does not know.
// Of Slices each claim is taken back by a drop of its own: a pod may be in several.
func (x *Index) DropAddress(addr netip.Addr, s Source, of Tag, at int64) {
	addr = addr.Unmap()
	x.mu.Lock()
	defer x.mu.Unlock()
	head := x.v6[addr.As16()]
	if addr.Is4() {
		head = x.v4[addr.As4()]
	}
	x.drop(head, s, of, at)
}

// DropContainer is DropAddress of a container.
func (x *Index) DropContainer(id string, s Source, of Tag, at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(x.containers[id], s, of, at)
}

func (x *Index) drop(head uint32, s Source, of Tag, at int64) {
	for i := head; i != 0; {
		p := x.spans.at(i)
		if p.tag == of && p.sources&(1<<s) != 0 {
			if s == Slices && p.slices < math.MaxUint8 {
				p.slices--
			}
			if s == Slices && p.slices > 0 {
				return
			}
			if p.sources &^= 1 << s; p.sources == 0 && p.to == 0 {
				p.to, p.leased = max(at, p.from), true
			}
		}
		i = p.older
	}
}

// At is who had an address at a time (wall clock, ns since 1970); false when that is not
// known. It allocates nothing, but the first time that somebody is asked for.
func (x *Index) At(addr netip.Addr, at int64) (observe.Workload, bool) {
	addr = addr.Unmap()
	x.mu.Lock()
	defer x.mu.Unlock()
	if addr.Is4() {
		return x.find(x.v4[addr.As4()], at)
	}
	return x.find(x.v6[addr.As16()], at)
}

// Of is whose container an id was at a time.
func (x *Index) Of(container string, at int64) (observe.Workload, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.find(x.containers[container], at)
}

// find is who began last before a time, where that goes on then and is one only.
func (x *Index) find(i uint32, at int64) (observe.Workload, bool) {
	for i != 0 && x.spans.at(i).from > at {
		i = x.spans.at(i).older
	}
	if i == 0 {
		return observe.Workload{}, false
	}
	var found *span
	for from := x.spans.at(i).from; i != 0; {
		p := x.spans.at(i)
		if p.from != from {
			break
		}
		if x.lasts(p, at) {
			if found != nil {
				return observe.Workload{}, false // both say so
			}
			found = p
		}
		i = p.older
	}
	if found == nil {
		return observe.Workload{}, false
	}
	return *x.who(found), true
}

// lasts says that a span that has begun goes on at a time.
func (x *Index) lasts(p *span, at int64) bool {
	if p.to != 0 {
		return at < p.to
	}
	for s := range x.horizon {
		if p.sources&(1<<s) != 0 && at <= x.horizon[s] {
			return true
		}
	}
	return false
}

// Stats says what there is.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stats
	s.Spans = x.spans.used
	return s
}

// claim puts a claim among those of its key.
func claim[K comparable](x *Index, keys map[K]uint32, key K, c *Claim) {
	if c.From <= 0 || c.To != 0 && c.To <= c.From {
		return
	}
	tag := x.TagOf(c.UID)
	for i := keys[key]; i != 0; {
		p := x.spans.at(i)
		if p.tag == tag && (c.To == 0 || c.To > p.from || p.from == c.From) && (p.to == 0 || p.leased || c.From < p.to) {
			x.join(p, c)
			if p.from > c.From {
				p.from = c.From
				keys[key] = x.sorted(keys[key], i)
			}
			return
		}
		i = p.older
	}
	if x.spans.used >= x.limits.Spans {
		x.sweep(c.From)
	}
	if x.spans.used >= x.limits.Spans || x.textBytes >= x.limits.Bytes {
		x.stats.LeftOut++
		return
	}
	if _, met := keys[key]; !met {
		if k, ok := any(&key).(*string); ok {
			*k = strings.Clone(*k)
		}
	}
	i := x.spans.take()
	p := x.spans.at(i)
	*p = span{from: c.From, to: c.To, tag: tag, leased: c.Leased}
	p.said(c.Source)
	x.name(p, &c.Who)
	p.older = keys[key]
	keys[key] = x.sorted(i, i)
}

// join makes one of a span and a claim that overlap.
func (x *Index) join(p *span, c *Claim) {
	switch {
	case p.leased && c.Leased:
		p.to = max(p.to, c.To)
	case c.Leased: // what is known for sure stays
	case p.leased:
		p.to, p.leased = c.To, false
	case c.To != 0 && (p.to == 0 || c.To < p.to):
		p.to = c.To
	}
	p.said(c.Source)
	if known := x.spell(p); known != c.Who {
		if merged := merge(known, c.Who); merged != known && x.textBytes < x.limits.Bytes {
			x.unname(p)
			x.name(p, &merged)
		}
	}
}

// merge adds what a claim knows to what was known. What controls a pod is known to
// whoever names anything but the pod itself.
func merge(known, c observe.Workload) observe.Workload {
	set := func(to *string, from string) {
		if from != "" {
			*to = from
		}
	}
	set(&known.Namespace, c.Namespace)
	set(&known.Pod, c.Pod)
	set(&known.Container, c.Container)
	set(&known.Node, c.Node)
	set(&known.Zone, c.Zone)
	if c.Kind != "" && (known.Kind == "" || c.Kind != "Pod") {
		known.Kind, known.Name = c.Kind, c.Name
	}
	return known
}

// sorted moves span i, whose beginning is new, to its place in the list that begins with
// head, the latest first.
func (x *Index) sorted(head, i uint32) uint32 {
	p := x.spans.at(i)
	if head == i {
		head = p.older
	} else {
		before := head
		for x.spans.at(before).older != i {
			before = x.spans.at(before).older
		}
		x.spans.at(before).older = p.older
	}
	at := &head
	for *at != 0 && x.spans.at(*at).from > p.from {
		at = &x.spans.at(*at).older
	}
	p.older, *at = *at, i
	return head
}

// Sweep forgets what ended long before a time.
func (x *Index) Sweep(now int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sweep(now)
}

// sweepEvery is how often an index that is full looks for what is over.
const sweepEvery = int64(10 * time.Second)

func (x *Index) sweep(now int64) {
	if now < x.swept+sweepEvery && x.swept != 0 {
		return
	}
	x.swept = now
	before := now - int64(x.limits.Keep)
	sweep(x, x.v4, before)
	sweep(x, x.v6, before)
	sweep(x, x.containers, before)
}

func sweep[K comparable](x *Index, keys map[K]uint32, before int64) {
	for key, head := range keys {
		at := &head
		for *at != 0 {
			p := x.spans.at(*at)
			if p.to == 0 || p.to > before {
				at = &p.older
				continue
			}
			gone := *at
			*at = p.older
			x.unname(p)
			x.spans.give(gone)
		}
		if head == 0 {
			delete(keys, key)
		} else {
			keys[key] = head
		}
	}
}
