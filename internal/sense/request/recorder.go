package request

import (
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
)

// Options say what to record.
type Options struct {
	Ports       []int         // only connections whose serving end has one of these ports; empty = all
	Side        observe.Side  // only this side; 0 = both
	Slow        time.Duration // a request at least this long always has a record of its own; 0 = 1 s
	Labels      bool          // keep method and path, statement or command
	Connections bool          // tell of closed connections too, see OnClosed
	Split       bool          // follow requests from thread to thread, see observe.ServerSplit
	Budget      float64       // share of the host's CPUs that slowray may take, in the kernel too, before it looks at less; 0 = 0.01, negative = no limit
}

const (
	defaultSlow   = time.Second
	defaultBudget = 0.01

	ringBytes    = 32 << 20 // of all CPUs together
	minSlots     = 1024
	maxSlots     = 8192
	maxAddresses = 2048
	counterBytes = 32 << 20 // of all CPUs together

	// A finished request on a connection where nothing happens is handed out
	// after this time; a longer pause inside an answer gives a second, amended
	// record.
	idle       = 3 * time.Second
	unfinished = time.Second
)

// Stats is what the recorder itself did and lost, since Start.
type Stats struct {
	Records        uint64         // requests with a record
	Sampled        uint64         // requests that were only counted, to stay within the budget
	Lost           uint64         // records dropped because a ring was full
	Connections    uint64         // connections not watched because kernel memory ran out
	OtherEndpoints uint64         // connections counted under "other": more than 2,047 addresses
	Missed         uint64         // events that the kernel kept from a program because it was at work on the same CPU; requests may lack a part, or a record
	LeftOut        uint64         // requests of connections that were not followed, about, to stay within the budget: sums are estimates
	Unfollowed     uint64         // requests, and calls, that were not followed: no kernel memory, or over 20,000 connections
	Streams        uint64         // requests of HTTP/2 that were not told apart: more than 128 at once on a connection, of connections more than 1,024 at once, or under way when a packet was lost
	Frames         uint64         // of HTTP/2 under TLS, by their length, that ask for nothing: taken for no request
	Untaken        uint64         // answers that the other end never took, of processes that have ended: taken for no request
	Blocks         uint64         // header blocks of HTTP/2 that were not seen, or not whole, at the least: until names and values are spelled out again, labels and traces may be missing
	Headers        uint64         // requests of HTTP/1.1 whose headers go on beyond what is kept, so that a trace may be there
	Contexts       uint64         // contexts of threads that could not be read: requests may lack their trace
	Mistaken       uint64         // connections under TLS that were taken for another one, for a while
	Weight         uint32         // how many requests a record stands for now: 1 = all are recorded
	Follow         uint32         // one of so many connections is followed now
	Split          uint32         // one of so many requests of those is followed from thread to thread now
	CPU            time.Duration  // this process's, user and system, since Start
	Opaque         map[int]string // processes whose requests under TLS cannot be told apart where they are side by side, and what encrypts there
	Missing        []string       // what this kernel cannot show, one sentence each
}

// Recorder records the requests of this host from Start to Close.
type Recorder struct {
	opt     Options
	objects objects
	links   []io.Closer              // kept: an unreferenced link is detached by its finalizer
	sending *ebpf.Program            // nil before Linux 6.16
	extra   map[string]*ebpf.Program // by name: those that only Split needs

	sendingLink io.Closer // nil when not attached

	overMaps  bool // this kernel has iterators over maps
	tailCalls bool // and lets programs with functions call other programs

	onConnect *bpf.Slot // nil without tail calls
	lookups   *bpf.Lookups

	records  []byte // [CPU][slot]record
	heads    []byte // [CPU][slot]head; one without labels
	handed   []byte // [CPU][slot]threadContext; one without labels
	rings    []byte // [CPU]ring
	counts   []byte // [endpoint][CPU][lane]counters
	cpus     int
	slots    uint64
	mapped   [][]byte
	ends     []uint64 // by CPU: records before are read in this poll
	payload  bool     // programs may read received bytes
	missing  []string
	onClosed func(*observe.Closed)
	closed   sync.Once

	handshakes map[counterKey]*Counters // of TLS
	shookHands map[handshakePeer]bool   // have completed one; all are forgotten where there are too many

	clock    int64 // wall clock less monotonic clock, ns
	request  observe.Request
	stats    Stats
	governor governor
	governed time.Time

	price     price
	guessedAt uint64 // requests that were followed, at the last look without a price
	looked    uint64 // the same, a second ago
	round     round  // of connections that are followed in turn
	share     uint   // one of 2^share is

	split   bool // requests are followed
	threads threadsOf

	streams streams   // of HTTP/2
	clear   clearSide // of HTTP/2 under TLS
	sealed  sealed
	headers headers

	contexts contexts               // of threads
	each     func(*observe.Request) // of the last Poll: Flush makes room with it
}

// objects are the programs and maps of request.bpf.c that every kernel has.
type objects struct {
	bpf.RequestMaps
	bpf.RequestVariables

	Segment       *ebpf.Program `ebpf:"segment"`
	Received      *ebpf.Program `ebpf:"received"`
	Retransmitted *ebpf.Program `ebpf:"retransmitted"`
	StateChanged  *ebpf.Program `ebpf:"state_changed"`
	Accepted4     *ebpf.Program `ebpf:"accepted4"`
	Accepted6     *ebpf.Program `ebpf:"accepted6"`
	Flush         *ebpf.Program `ebpf:"flush"`
	Waiting       *ebpf.Program `ebpf:"waiting"`
}

// Start attaches the programs and begins to record. It needs root, or CAP_BPF,
// CAP_PERFMON, CAP_NET_ADMIN and CAP_SYS_PTRACE, and Linux 5.12 with BTF. What this kernel
// lacks beyond that is reported in Stats.
func Start(opt Options) (*Recorder, error) {
	if opt.Slow == 0 {
		opt.Slow = defaultSlow
	}
	if opt.Budget == 0 {
		opt.Budget = defaultBudget
	}
	r := &Recorder{opt: opt}
	if err := r.start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("requests: %w", err)
	}
	return r, nil
}

func (r *Recorder) start() error {
	if err := r.load(); err != nil {
		return err
	}
	if err := r.mapMemory(); err != nil {
		return err
	}
	r.setClock()
	// First who listens where, so that the first segment of a connection that
	// is older than slowray finds its side.
	spaces, err := r.addListeners()
	defer func() {
		for _, ns := range spaces {
			ns.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := r.attach(); err != nil {
		return err
	}
	if err := r.addWaiting(spaces); err != nil {
		return err
	}
	r.governor.begin(r.opt.Budget)
	r.price.overhead = -1
	return nil
}

// load sizes and loads the programs.
func (r *Recorder) load() error {
	spec, err := bpf.LoadRequest()
	if err != nil {
		return err
	}
	if r.cpus, err = ebpf.PossibleCPU(); err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	r.ends = make([]uint64, r.cpus)
	r.slots = uint64(min(max(floorPowerOfTwo(ringBytes/recordSize/r.cpus), minSlots), maxSlots))
	endpoints := min(maxAddresses, counterBytes/(countersSize*2*r.cpus))
	spec.Maps[bpf.RequestMapRecords].MaxEntries = uint32(r.slots) * uint32(r.cpus)
	if r.opt.Labels {
		spec.Maps[bpf.RequestMapHeads].MaxEntries = uint32(r.slots) * uint32(r.cpus)
		spec.Maps[bpf.RequestMapHandedContexts].MaxEntries = uint32(r.slots) * uint32(r.cpus)
	}
	spec.Maps[bpf.RequestMapRings].MaxEntries = uint32(r.cpus)
	spec.Maps[bpf.RequestMapCounts].MaxEntries = uint32(endpoints * r.cpus * 2)

	side := uint32(3)
	if r.opt.Side != 0 {
		side = 1 << (r.opt.Side - 1)
	}
	var wanted [1024]uint64
	for _, p := range r.opt.Ports {
		wanted[p>>6&1023] |= 1 << (p & 63)
	}
	for name, value := range map[string]any{
		bpf.RequestVarSideMask:      side,
		bpf.RequestVarCpus:          uint32(r.cpus),
		bpf.RequestVarMaxEndpoints:  uint32(endpoints),
		bpf.RequestVarSlots:         uint32(r.slots),
		bpf.RequestVarSomePorts:     flag(len(r.opt.Ports) > 0),
		bpf.RequestVarWantPorts:     wanted,
		bpf.RequestVarWithLabels:    flag(r.opt.Labels),
		bpf.RequestVarWithClosed:    flag(r.opt.Connections),
		bpf.RequestVarOrderedStores: flag(runtime.GOARCH == "amd64"),
		bpf.RequestVarPageToAddress: uint32(bits.TrailingZeros(uint(os.Getpagesize() / structPageBytes))),
		bpf.RequestVarSlowNs:        uint64(r.opt.Slow),
		bpf.RequestVarIdleNs:        uint64(idle),
		bpf.RequestVarUnfinishedNs:  uint64(unfinished),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return r.loadSpec(spec)
}

// structPageBytes is sizeof(struct page) on kernels without debugging options.
const structPageBytes = 64

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

func floorPowerOfTwo(n int) int { return 1 << (bits.Len(uint(max(n, 1))) - 1) }

// mapMemory maps what is shared with the programs.
func (r *Recorder) mapMemory() error {
	for _, m := range []struct {
		into *[]byte
		from *ebpf.Map
		prot int
	}{
		{&r.records, r.objects.Records, unix.PROT_READ},
		{&r.heads, r.objects.Heads, unix.PROT_READ},
		{&r.handed, r.objects.HandedContexts, unix.PROT_READ},
		{&r.rings, r.objects.Rings, unix.PROT_READ | unix.PROT_WRITE},
		{&r.counts, r.objects.Counts, unix.PROT_READ},
	} {
		size := int(m.from.ValueSize()) * int(m.from.MaxEntries())
		data, err := unix.Mmap(m.from.FD(), 0, size, m.prot, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map %s: %w", m.from, err)
		}
		*m.into = data
		r.mapped = append(r.mapped, data)
	}
	return nil
}

// Close detaches the programs and frees their memory. It may be called again.
func (r *Recorder) Close() {
	r.closed.Do(func() {
		for _, l := range r.links {
			l.Close()
		}
		if r.sendingLink != nil {
			r.sendingLink.Close()
		}
		r.streams.close()
		r.clear.close()
		r.headers.close()
		r.contexts.close()
		r.price.close()
		for _, m := range r.mapped {
			_ = unix.Munmap(m)
		}
		r.objects.close()
		if r.sending != nil {
			r.sending.Close()
		}
		for _, p := range r.extra {
			p.Close()
		}
	})
}

// missed is how often the kernel did not run a program since it was at work on
// the same CPU already (bpf_prog.active; since Linux 5.12 it is counted). From
// Linux 7.0 on programs of tracepoints may be preempted, which makes it more
// than a curiosity.
func (r *Recorder) missed() (n uint64) {
	all := append(r.objects.programs(), r.sending)
	for _, p := range r.extra {
		all = append(all, p)
	}
	for _, p := range all {
		if p == nil {
			continue
		}
		if st, err := p.Stats(); err == nil {
			n += st.RecursionMisses
		}
	}
	return n
}

// OnClosed sets what Poll calls for closed connections.
func (r *Recorder) OnClosed(f func(*observe.Closed)) { r.onClosed = f }

// Stats tells what was recorded and lost so far.
func (r *Recorder) Stats() Stats {
	s := r.stats
	for cpu := range r.cpus {
		ring := r.ring(cpu)
		s.Lost += ring.lost
		s.Sampled += ring.skipped
		s.LeftOut += ring.leftOut
	}
	// A variable that cannot be read counts nothing; it was there at Start.
	_ = r.objects.LostConns.Get(&s.Connections)
	_ = r.objects.LostEndpoints.Get(&s.OtherEndpoints)
	_ = r.objects.Untaken.Get(&s.Untaken)
	_ = r.objects.LostWork.Get(&s.Unfollowed)
	_ = r.objects.LostContexts.Get(&s.Contexts)
	s.Streams = r.lostOfStreams()
	s.Blocks = r.headers.lost
	s.Missed, s.Frames, s.Mistaken = r.missed(), r.sealed.left, r.clear.mistaken()
	less := r.governor.less
	s.Weight, s.Follow, s.Split = 1<<(less.record+less.follow), 1<<less.follow, 1<<less.split
	s.CPU = r.governor.used()
	s.Missing, s.Opaque = slices.Clone(r.missing), r.clear.opaques()
	if what := r.statusMissing(); what != "" {
		s.Missing = append(s.Missing, what)
	}
	return s
}
