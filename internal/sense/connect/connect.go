package connect

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
)

const (
	familyInet  = 2
	familyInet6 = 10
)

// The kernel's structures, laid out as in connect.bpf.c.
type (
	outcome struct {
		Calls, Failed, Other uint64
		NetNS                uint32
		Comm                 [16]byte
		_                    uint32
	}
	inetKey struct {
		TGID   uint32
		Family uint16
		Port   uint16
		Addr   [16]byte
	}
	inetRow struct {
		Key   inetKey
		Calls uint64
	}
	unixKey struct {
		TGID uint32
		Path [108]byte
	}
	handshakeKey struct {
		NetNS   uint32
		Family  uint16
		Port    uint16
		Addr    [16]byte
		Passive uint32
	}
	handshake     struct{ Established, Failed, Refused, TimedOut, Unreachable uint64 }
	acceptOutcome struct {
		Accepted, MFile, NFile, NoBufs, Other uint64
		Comm                                  [16]byte
	}
)

// Watcher holds the attached programs. Closing it detaches them.
type Watcher struct {
	objects bpf.ConnectObjects
	state   io.Closer // kept: an unreferenced link is detached by its finalizer
	called  bool      // from a slot

	mu      sync.Mutex
	calls   []io.Closer   // of the system calls, while they are watched
	since   time.Time     // they are
	watched time.Duration // they were, before since
	closed  bool
}

// Start attaches the programs; what counts TCP's connect() is called from slot instead,
// where that is not nil and free, when a call begins or fails. It needs root or CAP_BPF and CAP_PERFMON.
func Start(slot *bpf.Slot) (*Watcher, error) {
	spec, err := bpf.LoadConnect()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	w := &Watcher{}
	if err := bpf.Load(spec, &w.objects); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := w.attach(slot); err != nil {
		w.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return w, nil
}

func (w *Watcher) attach(slot *bpf.Slot) error {
	if slot != nil {
		l, err := slot.Put(w.objects.SetState)
		if err == nil {
			w.state, w.called = l, true
			return nil
		}
		// Attached it costs more, and counts the same.
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: w.objects.SetState})
	if err != nil {
		return fmt.Errorf("attach sock/inet_sock_set_state: %w", err)
	}
	w.state = l
	return nil
}

// WatchCalls begins to watch connect() to unix sockets, and accept(). While it
// does, every system call of the host takes longer, by some 50 ns. Calls while
// they are watched already do nothing.
func (w *Watcher) WatchCalls() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls != nil || w.closed {
		return nil
	}
	for _, tp := range []struct {
		name string
		prog *ebpf.Program
	}{
		{"sys_exit_connect", w.objects.ConnectExit},
		{"sys_enter_connect", w.objects.ConnectEnter},
		{"sys_exit_accept4", w.objects.Accept4Exit},
		{"sys_exit_accept", w.objects.AcceptExit},
	} {
		l, err := bpf.AttachTracepoint("syscalls", tp.name, tp.prog)
		if err != nil {
			w.rest()
			return fmt.Errorf("connect: attach: %w", err)
		}
		w.calls = append(w.calls, l)
	}
	w.since = time.Now()
	return nil
}

// RestCalls ends what WatchCalls began. It waits for the kernel, for some tens
// of milliseconds.
func (w *Watcher) RestCalls() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest()
}

func (w *Watcher) rest() {
	if !w.since.IsZero() {
		w.watched += time.Since(w.since)
		w.since = time.Time{}
	}
	for _, l := range w.calls {
		l.Close()
	}
	w.calls = nil
}

// Close detaches the programs and frees their maps.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.rest()
	if w.state != nil {
		w.state.Close()
	}
	w.objects.Close()
}

// Target is the far end of outgoing connections.
type Target struct {
	NetNS uint64
	Addr  netip.Addr // not IPv4 in IPv6
	Port  int
}

// Handshakes are those completed, by address.
type Handshakes struct {
	Active  map[Target]uint64
	Passive map[PassiveKey]uint64
	Unnamed uint64 // of either side, of more addresses than have a place of their own
}

// Add counts the n handshakes of one address; of one that is not valid it is not known.
func (h *Handshakes) Add(passive bool, netns uint64, addr netip.Addr, port int, n uint64) {
	if h.Active == nil {
		h.Active, h.Passive = map[Target]uint64{}, map[PassiveKey]uint64{}
	}
	switch {
	case !addr.IsValid():
		h.Unnamed += n
	case passive:
		h.Passive[PassiveKey{netns, port}] += n
	default:
		h.Active[Target{netns, addr, port}] += n
	}
}

// PassiveKey names a listening end: the handshakes it completed are found
// under its port and, for a connection to one of many addresses, that address.
type PassiveKey struct {
	NetNS uint64
	Port  int
}

// Result is everything since Start.
type Result struct {
	Connects []observe.Connect // most calls first
	Accepts  []observe.Accept
	Opened   map[PassiveKey]uint64 // handshakes completed by listeners
	Losses   []observe.Loss
	// Watched is for how long connect() to unix sockets, and accept(), were
	// watched.
	Watched time.Duration
}

// Read sums up what was seen since Start. completed is what whoever has the slot of Start
// has counted since; nil without a slot.
func (w *Watcher) Read(completed *Handshakes) (Result, error) {
	r := Result{Opened: map[PassiveKey]uint64{}, Watched: w.callTime()}

	active, err := w.readHandshakes(r.Opened)
	if err != nil {
		return r, fmt.Errorf("connect: read handshakes: %w", err)
	}
	if w.called && completed != nil {
		for t, n := range completed.Active {
			h := active[t]
			h.Established = n
			active[t] = h
		}
		r.Opened = completed.Passive
	}
	if err := w.readConnects(&r, active, w.called && completed != nil && completed.Unnamed > 0); err != nil {
		return r, fmt.Errorf("connect: read outcomes: %w", err)
	}
	if err := w.readAccepts(&r); err != nil {
		return r, fmt.Errorf("connect: read accepts: %w", err)
	}
	for _, lost := range []struct {
		what string
		v    *ebpf.Variable
	}{
		{"connect() calls of more than 16,384 (process, address) pairs", w.objects.LostConnects},
		{"handshakes of more than 16,384 addresses", w.objects.LostHandshakes},
		{"accept() calls of more than 8,192 processes", w.objects.LostAccepts},
	} {
		var n uint64
		if err := lost.v.Get(&n); err == nil && n > 0 {
			r.Losses = append(r.Losses, observe.Loss{What: lost.what, Count: int64(n)})
		}
	}
	return r, nil
}

func (w *Watcher) callTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return w.watched
	}
	return w.watched + time.Since(w.since)
}

func (w *Watcher) readHandshakes(opened map[PassiveKey]uint64) (map[Target]handshake, error) {
	active := map[Target]handshake{}
	var (
		key handshakeKey
		val handshake
		it  = w.objects.Handshakes.Iterate()
	)
	for it.Next(&key, &val) {
		if key.Passive != 0 {
			opened[PassiveKey{uint64(key.NetNS), int(key.Port)}] += val.Established
			continue
		}
		t := Target{uint64(key.NetNS), address(key.Family, key.Addr), int(key.Port)}
		h := active[t]
		h.Established += val.Established
		h.Failed += val.Failed
		h.Refused += val.Refused
		h.TimedOut += val.TimedOut
		h.Unreachable += val.Unreachable
		active[t] = h
	}
	return active, it.Err()
}

func (w *Watcher) readConnects(r *Result, active map[Target]handshake, unnamed bool) error {
	var (
		key inetKey
		val outcome
		it  = w.objects.InetConnects.Iterate()
	)
	rows, err := w.rows()
	if err != nil {
		return err
	}
	calls := map[Target]uint64{} // to share handshakes among the processes that call the same address
	for it.Next(&key, &val) {
		val.Calls += rows[key]
		c := newConnect(int(key.TGID), &val, "EADDRNOTAVAIL")
		c.Family = "inet"
		if key.Family == familyInet6 {
			c.Family = "inet6"
		}
		addr := address(key.Family, key.Addr)
		c.Addr, c.Port = addr.String(), int(key.Port)
		calls[Target{c.NetNS, addr, c.Port}] += c.Started
		r.Connects = append(r.Connects, c)
	}
	if err := it.Err(); err != nil {
		return err
	}
	for i := range r.Connects {
		c := &r.Connects[i]
		addr, _ := netip.ParseAddr(c.Addr)
		t := Target{c.NetNS, addr, c.Port}
		if all := calls[t]; all > 0 {
			h := active[t]
			if h.Established == 0 && unnamed {
				h.Established = all - min(h.Failed, all) // fewer is not known
			}
			// Who counts them began a moment before.
			c.Established = min(share(h.Established, c.Started, all), c.Started)
			c.Failed = share(h.Failed, c.Started, all)
			c.Refused = share(h.Refused, c.Started, all)
			c.TimedOut = share(h.TimedOut, c.Started, all)
			c.Unreachable = share(h.Unreachable, c.Started, all)
		}
	}

	var ukey unixKey
	it = w.objects.UnixConnects.Iterate()
	for it.Next(&ukey, &val) {
		c := newConnect(int(ukey.TGID), &val, "EAGAIN")
		c.Family = "unix"
		c.Path = unixPath(ukey.Path[:])
		c.Established = c.Started
		r.Connects = append(r.Connects, c)
	}
	slices.SortFunc(r.Connects, func(a, b observe.Connect) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Path, b.Path))
	})
	return it.Err()
}

// rows are the calls that CPUs have counted and not summed up yet.
func (w *Watcher) rows() (map[inetKey]uint64, error) {
	var cpus []inetRow
	if err := w.objects.InetRows.Lookup(uint32(0), &cpus); err != nil {
		return nil, err
	}
	sum := map[inetKey]uint64{}
	for _, row := range cpus {
		sum[row.Key] += row.Calls
	}
	return sum, nil
}

func (w *Watcher) readAccepts(r *Result) error {
	var (
		tgid uint32
		val  acceptOutcome
		it   = w.objects.Accepts.Iterate()
	)
	for it.Next(&tgid, &val) {
		a := observe.Accept{PID: int(tgid), Comm: comm(val.Comm), Accepted: val.Accepted}
		for name, n := range map[string]uint64{"EMFILE": val.MFile, "ENFILE": val.NFile, "ENOBUFS": val.NoBufs, "other": val.Other} {
			if n > 0 {
				if a.Errors == nil {
					a.Errors = map[string]uint64{}
				}
				a.Errors[name] = n
			}
		}
		r.Accepts = append(r.Accepts, a)
	}
	slices.SortFunc(r.Accepts, func(a, b observe.Accept) int { return cmp.Compare(a.PID, b.PID) })
	return it.Err()
}

// newConnect takes over what BPF counted; failed is what its failures are.
func newConnect(pid int, o *outcome, failed string) observe.Connect {
	c := observe.Connect{
		PID: pid, Comm: comm(o.Comm), NetNS: uint64(o.NetNS),
		Calls: o.Calls, Started: o.Calls - min(o.Calls, o.Failed+o.Other),
	}
	for name, n := range map[string]uint64{failed: o.Failed, "other": o.Other} {
		if n > 0 {
			if c.Errors == nil {
				c.Errors = map[string]uint64{}
			}
			c.Errors[name] = n
		}
	}
	return c
}

// share splits n in proportion to part of all.
func share(n, part, all uint64) uint64 {
	return uint64(float64(n) * float64(part) / float64(all))
}

func address(family uint16, b [16]byte) netip.Addr {
	if family == familyInet {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b).Unmap()
}

func comm(b [16]byte) string {
	s, _, _ := strings.Cut(string(b[:]), "\x00")
	return s
}

// unixPath prints a sun_path; an abstract name gets the leading @ of ss(8).
func unixPath(b []byte) string {
	if len(b) > 0 && b[0] == 0 {
		name, _, _ := strings.Cut(string(b[1:]), "\x00")
		return "@" + name
	}
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
