package dns

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
)

// The kernel's structures, laid out as in dns.bpf.c.
type (
	serverKey struct {
		TGID   uint32
		NetNS  uint32
		Family uint16
		_      [3]uint16
		Addr   [16]byte
	}
	server struct {
		Queries, Answered, GivenUp, LostNS uint64
		AnswerNS, AnswerMax, Slow          uint64
		NotFound, Failed, Halves           uint64
		Comm                               [16]byte
	}
	lookupKey struct{ Thread, Name uint64 }
	lookup    struct {
		Server      serverKey
		First, Last uint64
		Open, Told  uint32
	}
	process struct {
		Lookups, LookupNS, LookupMax uint64
		NotFound, Seen               uint64
		Tails                        [tails][tailBytes]byte
		TailLen                      [tails]uint32
	}
)

const (
	tails     = 4
	tailBytes = 64
	// overdue is how long a query may be without an answer before it counts as
	// unanswered: less than any resolver waits.
	overdue = 900 * time.Millisecond
	// waitMost bounds what a query without an answer is taken to have cost when
	// nobody asked again: the C library's time limit.
	waitMost = 5 * time.Second
)

// Watcher holds the attached programs. Closing it detaches them.
type Watcher struct {
	objects bpf.DNSObjects
	root    string
	lookups *bpf.Lookups // written down for who records connections; may be nil

	mu      sync.Mutex
	packets []io.Closer // nil while they rest
	since   time.Time   // they are attached
	meant   []io.Closer // what sees that somebody is about to ask

	stop chan struct{}
	done sync.WaitGroup
}

const (
	// calm is how long no nameserver was asked before the programs rest.
	calm = 2 * time.Second
	// wake is how soon they are at work when one is to be asked: answers that take
	// longer are slow.
	wake = 20 * time.Millisecond
)

// Start attaches the programs to a control group of version 2, the root of
// all, and so sees all sockets of the host. They are run for every packet of it:
// while busy says that slowray has to do with less, and nobody asks, they rest.
// Which addresses a name had is written down in lookups, where that is not nil: it has to stay
// open for as long.
// It needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
func Start(root string, busy func() bool, lookups *bpf.Lookups) (*Watcher, error) {
	spec, err := bpf.LoadDNS()
	if err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	w := &Watcher{root: root, stop: make(chan struct{})}
	if err := bpf.LoadDNSBeside(spec, &w.objects, lookups); err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	if err := lookups.Written(true); err != nil {
		w.objects.Close()
		return nil, fmt.Errorf("dns: %w", err)
	}
	w.lookups = lookups
	if err := w.work(); err != nil {
		w.Close()
		return nil, fmt.Errorf("dns: %w", err)
	}
	if busy != nil {
		w.done.Go(func() { w.tend(busy) })
	}
	return w, nil
}

// work attaches what sees the packets.
func (w *Watcher) work() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
	w.packets, err = bpf.AttachCgroup(w.root,
		bpf.CgroupProgram{At: ebpf.AttachCGroupInetIngress, Program: w.objects.DnsIn},
		bpf.CgroupProgram{At: ebpf.AttachCGroupInetEgress, Program: w.objects.DnsOut})
	return err
}

// rest detaches it, and attaches what sees that somebody is about to ask.
func (w *Watcher) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meant == nil {
		links, err := bpf.AttachCgroup(w.root,
			bpf.CgroupProgram{At: ebpf.AttachCGroupInet4Connect, Program: w.objects.DnsConnect4},
			bpf.CgroupProgram{At: ebpf.AttachCGroupInet6Connect, Program: w.objects.DnsConnect6},
			bpf.CgroupProgram{At: ebpf.AttachCGroupUDP4Sendmsg, Program: w.objects.DnsSendmsg4},
			bpf.CgroupProgram{At: ebpf.AttachCGroupUDP6Sendmsg, Program: w.objects.DnsSendmsg6})
		w.meant = links
		if err != nil {
			return // then they work all the time
		}
	}
	detach(&w.packets)
}

func detach(links *[]io.Closer) {
	for _, l := range *links {
		l.Close()
	}
	*links = nil
}

// tend has the programs rest while that is possible.
func (w *Watcher) tend(busy func() bool) {
	const look = calm / 2
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	resting, expensive := false, false
	var asked time.Time // whether it is busy
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		// Variables that cannot be read are 0: nothing was seen.
		var seen, meant uint64
		_, _ = w.objects.LastSeen.Get(&seen), w.objects.LastMeant.Get(&meant)
		quiet := time.Since(w.since) >= calm && since(max(seen, meant)) >= calm
		if time.Since(asked) >= look {
			expensive, asked = busy(), time.Now()
		}
		switch {
		case resting && !(quiet && expensive):
			if w.work() == nil {
				resting = false
				ticker.Reset(look)
			}
		case !resting && quiet && expensive:
			w.rest()
			if resting = w.packets == nil; resting {
				ticker.Reset(wake)
			}
		}
	}
}

// since is how long ago something was, of the kernel's clock; for ever, for 0.
func since(at uint64) time.Duration {
	if at == 0 {
		return math.MaxInt64
	}
	return time.Duration(monotonic() - int64(at))
}

// monotonic is the kernel's clock, ns.
func monotonic() int64 {
	var now unix.Timespec
	// clock_gettime(CLOCK_MONOTONIC) cannot fail on Linux.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// Close detaches the programs and frees their maps.
func (w *Watcher) Close() {
	close(w.stop)
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	detach(&w.packets)
	detach(&w.meant)
	// Where the maps are gone nobody reads them.
	_ = w.lookups.Written(false)
	w.objects.Close()
}

// Read sums up what was seen since Start, by process, most lookups first. The
// resolver's configuration, by which names that were not found are judged, is
// asked of resolver; it may be nil for a process.
func (w *Watcher) Read(resolver func(pid int) *observe.Resolver) ([]observe.DNS, []observe.Loss, error) {
	byPID := map[uint32]*observe.DNS{}
	servers := map[serverKey]*observe.DNSServer{}
	var (
		key serverKey
		val server
		it  = w.objects.DnsServers.Iterate()
	)
	for it.Next(&key, &val) {
		d := byPID[key.TGID]
		if d == nil {
			d = &observe.DNS{PID: int(key.TGID), Comm: comm(val.Comm), NetNS: uint64(key.NetNS)}
			byPID[key.TGID] = d
		}
		servers[key] = &observe.DNSServer{
			Addr: address(key.Family, key.Addr), Queries: val.Queries, Answered: val.Answered,
			Unanswered: val.GivenUp, LostNS: int64(val.LostNS), AnswerNS: int64(val.AnswerNS), AnswerMaxNS: int64(val.AnswerMax),
			Slow: val.Slow, NotFound: val.NotFound, Failed: val.Failed, Halves: val.Halves,
		}
	}
	if err := it.Err(); err != nil {
		return nil, nil, fmt.Errorf("dns: read servers: %w", err)
	}
	if err := w.readOpen(byPID, servers); err != nil {
		return nil, nil, fmt.Errorf("dns: read lookups: %w", err)
	}
	for key, s := range servers {
		d := byPID[key.TGID]
		d.Servers = append(d.Servers, *s)
	}
	if err := w.readProcesses(byPID, resolver); err != nil {
		return nil, nil, fmt.Errorf("dns: read processes: %w", err)
	}
	out := make([]observe.DNS, 0, len(byPID))
	for _, d := range byPID {
		slices.SortFunc(d.Servers, func(a, b observe.DNSServer) int {
			return cmp.Or(cmp.Compare(b.Queries, a.Queries), strings.Compare(a.Addr, b.Addr))
		})
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b observe.DNS) int {
		return cmp.Or(cmp.Compare(b.Lookups, a.Lookups), cmp.Compare(a.PID, b.PID))
	})
	var losses []observe.Loss
	var lost uint64
	if err := w.objects.LostDns.Get(&lost); err == nil && lost > 0 {
		losses = append(losses, observe.Loss{What: "DNS queries of more than 4,096 (process, nameserver) pairs", Count: int64(lost)})
	}
	return out, losses, nil
}

// readOpen takes in the lookups that have not come to an end.
func (w *Watcher) readOpen(byPID map[uint32]*observe.DNS, servers map[serverKey]*observe.DNSServer) error {
	now := monotonic()
	var (
		key lookupKey
		val lookup
		it  = w.objects.DnsLookups.Iterate()
	)
	for it.Next(&key, &val) {
		d, s := byPID[val.Server.TGID], servers[val.Server]
		if d == nil || s == nil {
			continue
		}
		age := time.Duration(now - int64(val.Last))
		if age < overdue || val.Open == 0 {
			continue
		}
		s.Unanswered += uint64(val.Open)
		if val.Told != 0 {
			s.Halves += uint64(val.Open)
		}
		s.LostNS += int64(min(age, waitMost))
		d.Open++
		d.OpenNS += int64(min(time.Duration(val.Last-val.First)+min(age, waitMost), 12*waitMost))
	}
	return it.Err()
}

func (w *Watcher) readProcesses(byPID map[uint32]*observe.DNS, resolver func(int) *observe.Resolver) error {
	var (
		pid uint32
		val process
		it  = w.objects.DnsProcesses.Iterate()
	)
	for it.Next(&pid, &val) {
		d := byPID[pid]
		if d == nil {
			continue
		}
		d.Lookups, d.LookupNS, d.LookupMaxNS, d.NotFound = val.Lookups, int64(val.LookupNS), int64(val.LookupMax), val.NotFound
		r := resolver(int(pid))
		for i := range min(val.Seen, tails) {
			d.Sampled++
			if r != nil && endsInSearch(val.Tails[i][:min(val.TailLen[i], tailBytes)], r.Search) {
				d.Searched++
			}
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	for pid, d := range byPID {
		d.Resolver = resolver(int(pid))
	}
	return nil
}

// endsInSearch says whether the end of a name, as in a query, is a search
// domain. Of a domain longer than what is kept of a name the end is compared.
func endsInSearch(tail []byte, search []string) bool {
	for _, domain := range search {
		want := wire(domain)
		if len(want) > tailBytes {
			want = want[len(want)-tailBytes:]
		}
		if len(want) > 1 && bytes.HasSuffix(bytes.ToLower(tail), want) {
			return true
		}
	}
	return false
}

// wire is a name as in a query: labels with their length before, and 0.
func wire(domain string) []byte {
	var b []byte
	for label := range strings.SplitSeq(strings.ToLower(domain), ".") {
		if label == "" || len(label) > 63 {
			return nil
		}
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}

func address(family uint16, b [16]byte) string {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4])).String()
	}
	return netip.AddrFrom16(b).Unmap().String()
}

func comm(b [16]byte) string {
	s, _, _ := strings.Cut(string(b[:]), "\x00")
	return s
}
