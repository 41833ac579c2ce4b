package workload

import (
	"math"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// span is for how long somebody had a key. There may be very many of them: what they are
// called is put together when somebody asks.
type span struct {
	from, to  int64
	who       *observe.Workload // nil until it is asked for
	tag       Tag
	older     uint32 // the one of the same key that began before
	owner     uint32
	place     uint32
	container uint32
	pod       uint32 // the pod's name up to its last hyphen, which all of a ReplicaSet share
	suffix    [10]byte
	length    uint8 // of suffix
	sources   uint8 // bits
	slices    uint8 // claims of Slices that were not dropped; not counted from 255 on
	leased    bool
}

func (p *span) said(s Source) {
	p.sources |= 1 << s
	if s == Slices && p.slices < math.MaxUint8 {
		p.slices++
	}
}

// owner is what a pod belongs to, and place where it is.
type (
	owner struct{ namespace, kind, name uint32 }
	place struct{ node, zone uint32 }
)

// slab keeps spans by number, without moving them. Number 0 is none.
type slab struct {
	chunks []*[chunk]span
	free   []uint32
	used   int
	next   uint32
}

const chunk = 512

func (s *slab) at(i uint32) *span { return &s.chunks[i/chunk][i%chunk] }

func (s *slab) take() uint32 {
	s.used++
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	s.next++
	if int(s.next/chunk) >= len(s.chunks) {
		s.chunks = append(s.chunks, new([chunk]span))
	}
	return s.next
}

func (s *slab) give(i uint32) {
	s.used--
	*s.at(i) = span{}
	s.free = append(s.free, i)
}

// split parts the name of a pod into what others share and what is its own.
func split(pod string) (shared, own string) {
	at := strings.LastIndexByte(pod, '-') + 1
	if len(pod)-at > len(span{}.suffix) {
		return pod, ""
	}
	return pod[:at], pod[at:]
}

func (x *Index) text(s string) uint32 {
	if id, ok := x.texts.ids[s]; ok {
		x.texts.items[id].holds++
		return id
	}
	id, fresh := x.texts.hold(strings.Clone(s))
	if fresh {
		x.textBytes += len(s)
	}
	return id
}

func (x *Index) untext(id uint32) {
	if s, gone := x.texts.release(id); gone {
		x.textBytes -= len(s)
	}
}

// name says whose span it is.
func (x *Index) name(p *span, w *observe.Workload) {
	o := owner{x.text(w.Namespace), x.text(w.Kind), x.text(w.Name)}
	id, fresh := x.owners.hold(o)
	if p.owner = id; !fresh {
		x.disown(o)
	}
	at := place{x.text(w.Node), x.text(w.Zone)}
	id, fresh = x.places.hold(at)
	if p.place = id; !fresh {
		x.untext(at.node)
		x.untext(at.zone)
	}
	p.container = x.text(w.Container)
	shared, own := split(w.Pod)
	p.pod, p.length = x.text(shared), uint8(copy(p.suffix[:], own))
}

func (x *Index) disown(o owner) {
	for _, id := range [...]uint32{o.namespace, o.kind, o.name} {
		x.untext(id)
	}
}

// unname is the inverse of name.
func (x *Index) unname(p *span) {
	if p.who != nil {
		p.who = nil
		x.expanded--
	}
	if o, gone := x.owners.release(p.owner); gone {
		x.disown(o)
	}
	if at, gone := x.places.release(p.place); gone {
		x.untext(at.node)
		x.untext(at.zone)
	}
	x.untext(p.container)
	x.untext(p.pod)
}

// maxExpanded bounds the workloads that are kept put together: those of the addresses
// that a busy host has to do with.
const maxExpanded = 16 << 10

// who is whose span it is, put together once.
func (x *Index) who(p *span) *observe.Workload {
	if p.who == nil {
		w := x.spell(p)
		if x.expanded >= maxExpanded {
			return &w
		}
		p.who = &w
		x.expanded++
	}
	return p.who
}

func (x *Index) spell(p *span) observe.Workload {
	o, at := x.owners.of(p.owner), x.places.of(p.place)
	return observe.Workload{
		Namespace: x.texts.of(o.namespace), Kind: x.texts.of(o.kind), Name: x.texts.of(o.name),
		Node: x.texts.of(at.node), Zone: x.texts.of(at.zone),
		Container: x.texts.of(p.container), Pod: x.texts.of(p.pod) + string(p.suffix[:p.length]),
	}
}
