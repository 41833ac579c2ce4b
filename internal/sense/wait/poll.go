package wait

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

const (
	maxPolled  = 8 // descriptors; more of them are an event loop
	maxAwaited = 3 // connections among them; more of them are an event loop too

	pollIn  = 0x0001 | 0x0040 | 0x0080 // POLLIN, POLLRDNORM, POLLRDBAND (poll(2))
	pollOut = 0x0004 | 0x0100 | 0x0200 // POLLOUT, POLLWRNORM, POLLWRBAND

	pollfdSize = 8 // int fd, short events, short revents
	maxFDSet   = 65536
)

// polled is a descriptor in poll or select, and what is awaited of it.
type polled struct {
	fd   int
	does direction
}

// polling is the wait in poll and ppoll: array, number, timeout.
func (l *look) polling(t *thread) *link {
	a := t.call.args
	timed := a[2] != 0
	if l.callName(t) == "poll" {
		timed = int32(a[2]) >= 0
	}
	n := a[1]
	if n == 0 {
		return pollsNothing(timed)
	}
	if n > maxPolled {
		return pollsMany(n)
	}
	b := l.bytesAt(t.p, a[0], int(n)*pollfdSize)
	if b == nil {
		return ends(observe.WaitEpoll, observe.EndIdle, "waits for any of %d descriptors", n)
	}
	var set []polled
	for ; len(b) > 0; b = b[pollfdSize:] {
		fd := int(int32(binary.NativeEndian.Uint32(b)))
		events := binary.NativeEndian.Uint16(b[4:])
		switch {
		case fd < 0:
		case events&pollIn != 0:
			set = append(set, polled{fd, reading})
		case events&pollOut != 0:
			set = append(set, polled{fd, writing})
		}
	}
	return l.onAny(t, set, timed)
}

// selecting is the wait in select and pselect6: number, sets to read, to write
// and of exceptions, timeout.
func (l *look) selecting(t *thread) *link {
	a := t.call.args
	timed := a[4] != 0
	n := int(int32(a[0]))
	if n <= 0 || n > maxFDSet {
		return pollsNothing(timed)
	}
	var set []polled
	for i, does := range []direction{reading, writing} {
		addr := a[1+i]
		if addr == 0 {
			continue
		}
		// The sets are arrays of longs.
		b := l.bytesAt(t.p, addr, (n+63)/64*8)
		if b == nil {
			return ends(observe.WaitEpoll, observe.EndIdle, "waits for any of several descriptors")
		}
		for fd := range n {
			if b[fd/8]&(1<<(fd%8)) != 0 {
				set = append(set, polled{fd, does})
			}
		}
	}
	switch {
	case len(set) == 0:
		return pollsNothing(timed)
	case len(set) > maxPolled:
		return pollsMany(uint64(len(set)))
	}
	return l.onAny(t, set, timed)
}

func pollsNothing(timed bool) *link {
	if timed {
		return ends(observe.WaitSleep, observe.EndSleep, "sleeps for a time that it chose itself")
	}
	return ends(observe.WaitEvent, observe.EndIdle, "waits for a signal")
}

func pollsMany(n uint64) *link {
	return ends(observe.WaitEpoll, observe.EndIdle, "waits for any of %d descriptors", n)
}

// onAny is the wait for any of a few descriptors. When they come to one
// connection or pipe, besides those a program keeps to wake itself up, it is a
// wait for the other end of that: so do clients that want a time limit.
func (l *look) onAny(t *thread, set []polled, timed bool) *link {
	var awaited []*link
	for _, p := range set {
		k := l.onFD(t, p.fd, p.does)
		switch {
		case l.wakesItself(t, k):
		case k.kind == observe.WaitTerminal, k.kind == observe.WaitAccept, k.wants == observe.WantsRequest:
			// Whoever also takes orders is ready for work.
			return k
		case k.kind == observe.WaitEvent, k.end == observe.EndIdle:
		default:
			awaited = append(awaited, k)
		}
	}
	switch {
	case len(awaited) == 0, len(awaited) > maxAwaited:
		return pollsMany(uint64(len(set)))
	case len(awaited) == 1:
		k := *awaited[0]
		k.sure = k.sure && !timed && len(set) == 1
		return &k
	}
	// Any of several can end the wait: nobody stands in the way alone.
	k := *awaited[0]
	k.wants, k.sure, k.targets, k.remote = observe.WantsData, false, nil, ""
	var objects []string
	for _, other := range awaited {
		objects = append(objects, other.object)
		k.targets = append(k.targets, other.targets...)
		if k.remote == "" {
			k.remote = other.remote
		}
	}
	k.object = strings.Join(objects, " or ")
	k.detail = fmt.Sprintf("any of %d will do", len(awaited))
	if len(k.targets) > 0 {
		k.end, k.text = "", ""
	}
	return &k
}

// wakesItself says whether only the process itself has the other end: a pipe or
// pair of sockets by which its threads wake each other.
func (l *look) wakesItself(t *thread, k *link) bool {
	return len(k.targets) > 0 && (k.kind == observe.WaitPipe || k.kind == observe.WaitUnix) &&
		!slices.ContainsFunc(k.targets, func(to target) bool { return to.pid != t.p.pid })
}
