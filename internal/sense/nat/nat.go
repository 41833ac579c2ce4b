package nat

import (
	"bytes"
	"cmp"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	// maxPlaces is how many network namespaces are asked: those with most entries.
	maxPlaces = 8
	// perSecond is how many look-ups are made at most, of about 10 µs.
	perSecond = 200
	// lookEvery is how long namespaces that track connections are believed to be all.
	lookEvery = time.Minute
	// inVain look-ups for callers of one namespace and it is left alone until the next look.
	inVain = 16
	// fresh is how old the end of a request may be: an address and a port that a client
	// uses again after a second (tcp_tw_reuse) would be answered for another connection.
	fresh = time.Second
)

// Table looks connections up. Its methods may be called from several goroutines.
type Table struct {
	fs host.FS

	mu      sync.Mutex
	places  []*place
	told    map[uint64]*place // by the namespace of the client: who knew of its connections
	vain    map[uint64]int
	looking bool
	looked  bool // places are known
	closed  bool
	idle    *time.Timer // closes what is open, after lookEvery
	second  int64       // and what was asked in it
	asked   int
}

// place is a network namespace that tracks connections.
type place struct {
	inode   uint64
	pid     int
	entries uint64
	sock    *nl.Socket
}

// New is a table that has asked nobody yet.
func New(fs host.FS) *Table {
	return &Table{fs: fs, told: map[uint64]*place{}, vain: map[uint64]int{}}
}

// Close closes what is open.
func (t *Table) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.idle != nil {
		t.idle.Stop()
	}
	t.take(nil)
}

// Destination is where the calls of a connection really go, when a request on it has
// just ended; invalid where nothing is translated, nobody knows, or too much is asked. It
// waits for nothing: until it is known who tracks connections, nothing is known.
func (t *Table) Destination(r *observe.Request) netip.AddrPort {
	if t == nil || r.Side != observe.Called || r.Peer.Addr().IsLoopback() || !r.Peer.IsValid() || r.Local.Addr().Unmap().Is4() != r.Peer.Addr().Unmap().Is4() {
		return netip.AddrPort{}
	}
	now := time.Now()
	if now.UnixNano()-r.StartNS-r.TotalNS() > int64(fresh) {
		return netip.AddrPort{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.looked && !t.looking && !t.closed {
		t.looking = true
		go t.look()
	}
	if first := t.told[r.NetNS]; first != nil {
		to, _ := t.ask(first, r, now)
		return to
	}
	if t.vain[r.NetNS] >= inVain || len(t.places) == 0 {
		return netip.AddrPort{}
	}
	for _, own := range []bool{true, false} { // what is redirected in a pod goes nowhere else
		for _, p := range t.places {
			if (p.inode == r.NetNS) != own {
				continue
			}
			to, asked := t.ask(p, r, now)
			if to.IsValid() {
				t.told[r.NetNS] = p
			}
			if to.IsValid() || !asked {
				return to
			}
		}
	}
	t.vain[r.NetNS]++
	return netip.AddrPort{}
}

// may says that one more look-up fits into this second.
func (t *Table) may(now time.Time) bool {
	if s := now.Unix(); s != t.second {
		t.second, t.asked = s, 0
	}
	t.asked++
	return t.asked <= perSecond
}

// ask looks one connection up in one namespace, unless too much is asked.
func (t *Table) ask(p *place, r *observe.Request, now time.Time) (to netip.AddrPort, asked bool) {
	if !t.may(now) {
		return to, false
	}
	packed, own := p.sock.Pack(nl.Message{Kind: ctGet, Payload: question(r.Local, r.Peer)})
	if p.sock.Send(packed) != nil {
		return to, true
	}
	// The kernel answers while it is asked: nothing to wait for.
	_ = p.sock.Receive(unix.MSG_DONTWAIT, func(seq uint32, m nl.Message) (more bool, err error) {
		if seq != own {
			return true, nil
		}
		if m.Kind != unix.NLMSG_ERROR { // ENOENT: it is not tracked here
			to = answeredBy(m.Payload)
		}
		return false, nil
	})
	if to == (netip.AddrPortFrom(r.Peer.Addr().Unmap(), r.Peer.Port())) {
		to = netip.AddrPort{}
	}
	return to, true
}

// look finds the namespaces that track connections.
func (t *Table) look() {
	var found []*place
	if t.answers() {
		procs, _ := t.fs.Processes() // what cannot be read does not call either
		for inode, pid := range host.NetNamespaces(procs) {
			if n := t.tracked(pid); n > 0 {
				found = append(found, &place{inode: inode, pid: pid, entries: n})
			}
		}
	}
	slices.SortFunc(found, func(a, b *place) int { return cmp.Or(cmp.Compare(b.entries, a.entries), cmp.Compare(a.inode, b.inode)) })
	found = slices.DeleteFunc(found[:min(len(found), maxPlaces)], func(p *place) bool { return !t.open(p) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looking, t.looked = false, true
	if t.closed {
		for _, p := range found {
			p.sock.Close()
		}
		return
	}
	t.take(found)
	// An open socket keeps a namespace that has no process any more.
	t.idle = time.AfterFunc(lookEvery, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.take(nil)
		t.looked = false
	})
}

// take puts other places in the place of those there are.
func (t *Table) take(found []*place) {
	for _, p := range t.places {
		p.sock.Close()
	}
	t.places = found
	clear(t.told)
	clear(t.vain)
}

// tracked is how many connections the namespace of a process tracks.
func (t *Table) tracked(pid int) uint64 {
	n, err := t.fs.OpenNetNS(pid)
	if err != nil {
		return 0 // it has ended
	}
	defer n.Close()
	c, _ := n.Conntrack()
	return c.Entries
}

// open opens a socket in a namespace.
func (t *Table) open(p *place) bool {
	n, err := t.fs.OpenNetNS(p.pid)
	if err != nil {
		return false
	}
	defer n.Close()
	return n.Do(func() (err error) { p.sock, err = nl.Open(unix.NETLINK_NETFILTER); return err }) == nil
}

// answers says that the kernel can be asked without loading a module for it.
func (t *Table) answers() bool {
	b, err := os.ReadFile(filepath.Join(t.fs.Proc, "modules"))
	if errors.Is(err, os.ErrNotExist) {
		return true // a kernel without modules
	}
	tracks := bytes.HasPrefix(b, []byte("nf_conntrack ")) || bytes.Contains(b, []byte("\nnf_conntrack "))
	return err == nil && (!tracks || bytes.HasPrefix(b, []byte("nf_conntrack_netlink ")) || bytes.Contains(b, []byte("\nnf_conntrack_netlink ")))
}
