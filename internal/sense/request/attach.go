package request

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/host"
)

// loadSpec loads the programs, without those whose hook this kernel lacks.
func (r *Recorder) loadSpec(spec *ebpf.CollectionSpec) error {
	if !hasTracepoint("tcp_sendmsg_locked") {
		delete(spec.Programs, bpf.RequestProgSending)
	}
	if err := r.prepareSplit(spec); err != nil {
		return err
	}
	// Whether programs may read received buffers.
	r.payload = loads(spec.Programs[bpf.RequestProgPayloadProbe])
	delete(spec.Programs, bpf.RequestProgPayloadProbe)
	if err := spec.Variables[bpf.RequestVarWithPayload].Set(flag(r.payload)); err != nil {
		return fmt.Errorf("set %s: %w", bpf.RequestVarWithPayload, err)
	}
	if err := r.prepareSlot(spec); err != nil {
		return err
	}
	// Some hosts refuse iterators over maps (EPERM, with all capabilities).
	if r.overMaps = loads(spec.Programs[bpf.RequestProgOverMaps]); !r.overMaps {
		spec.Programs[bpf.RequestProgFlush] = spec.Programs[bpf.RequestProgFlushFiles]
	}
	delete(spec.Programs, bpf.RequestProgOverMaps)
	delete(spec.Programs, bpf.RequestProgFlushFiles)
	all, err := bpf.LoadCollection(spec)
	if err != nil {
		// The verifier's words on what it does not know say nothing to a user.
		if lacks := new(bpf.LacksError); errors.As(bpf.HaveFetchAtomics(), &lacks) {
			return lacks
		}
		return err
	}
	defer all.Close() // what is assigned stays
	if err := all.Assign(&r.objects); err != nil {
		return err
	}
	r.lookups = bpf.NewLookups(&r.objects.RequestMaps, &r.objects.RequestVariables)
	if r.tailCalls {
		r.onConnect = bpf.NewSlot(r.objects.OnConnect)
	}
	r.sending = all.DetachProgram(bpf.RequestProgSending)
	r.extra = map[string]*ebpf.Program{}
	for name := range splitHooks {
		if p := all.DetachProgram(name); p != nil {
			r.extra[name] = p
		}
	}
	return nil
}

// prepareSlot finds out whether the program at changes of state may call another one,
// which arm64 refuses before Linux 6.0 to programs that have functions.
func (r *Recorder) prepareSlot(spec *ebpf.CollectionSpec) error {
	r.tailCalls = loadsWith(spec, bpf.RequestProgTailCallProbe, bpf.RequestMapOnConnect)
	delete(spec.Programs, bpf.RequestProgTailCallProbe)
	if err := spec.Variables[bpf.RequestVarWithTailCalls].Set(flag(r.tailCalls)); err != nil {
		return fmt.Errorf("set %s: %w", bpf.RequestVarWithTailCalls, err)
	}
	return nil
}

// loadsWith is loads for a program that uses one map.
func loadsWith(spec *ebpf.CollectionSpec, program, m string) bool {
	one, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Programs:  map[string]*ebpf.ProgramSpec{program: spec.Programs[program].Copy()},
		Maps:      map[string]*ebpf.MapSpec{m: spec.Maps[m].Copy()},
		Types:     spec.Types,
		ByteOrder: spec.ByteOrder,
	})
	if err != nil {
		return false // as in loads
	}
	one.Close()
	return true
}

// loads asks the kernel whether it loads a program that does nothing but what is
// asked for.
func loads(probe *ebpf.ProgramSpec) bool {
	p, err := ebpf.NewProgramWithOptions(probe, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return false // whatever else is wrong fails the load that follows, too
	}
	p.Close()
	return true
}

// statusMissing says what is not known of the status of answers on this
// kernel, or nothing.
func (r *Recorder) statusMissing() string {
	switch {
	case !r.payload:
		return "status of answers, labels: programs may not read received bytes (needs Linux 6.12)"
	case r.sending == nil && !r.sentBytesFound():
		return "status of answers served here: where bytes that were sent lie in memory is not found yet, and tracepoint tcp:tcp_sendmsg_locked is missing (needs Linux 6.16)"
	}
	return ""
}

// sentBytesFound says whether the programs can read what was sent.
func (r *Recorder) sentBytesFound() bool {
	var found uint64
	return r.objects.PageConstant.Get(&found) == nil && found != 0
}

// hasTracepoint asks the running kernel's BTF for a raw tracepoint, one of optionalTracepoints.
func hasTracepoint(name string) bool { return kernelTracepoints()[name] }

// optionalTracepoints are those that not every kernel has.
var optionalTracepoints = []string{"tcp_sendmsg_locked", "sock_send_length"}

// kernelTracepoints tells which of them this one has: to read its types takes a while.
var kernelTracepoints = sync.OnceValue(func() map[string]bool {
	has := map[string]bool{}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return has
	}
	for _, name := range optionalTracepoints {
		var t *btf.Typedef
		has[name] = spec.TypeByName("btf_trace_"+name, &t) == nil
	}
	return has
})

func (o *objects) programs() []*ebpf.Program {
	return []*ebpf.Program{o.Segment, o.Received, o.Retransmitted, o.StateChanged, o.Accepted4, o.Accepted6, o.Flush, o.Waiting}
}

func (o *objects) close() {
	o.RequestMaps.Close()
	for _, p := range o.programs() {
		if p != nil {
			p.Close()
		}
	}
}

func (r *Recorder) attach() error {
	if r.sending != nil {
		if err := r.objects.SendingSeen.Set(uint8(1)); err != nil {
			return fmt.Errorf("attach tcp/tcp_sendmsg_locked: %w", err)
		}
	}
	if err := r.attachSplit(r.extra); err != nil {
		return err
	}
	// Connections first, so that none is met at its first segment only.
	for _, p := range []struct {
		name string
		prog *ebpf.Program
	}{
		{"sock/inet_sock_set_state", r.objects.StateChanged},
		{"tcp/tcp_retransmit_skb", r.objects.Retransmitted},
		{"tcp/tcp_rcv_space_adjust", r.objects.Received},
		{"tcp/tcp_sendmsg_locked", r.sending},
		{"tcp/tcp_probe", r.objects.Segment},
	} {
		if p.prog == nil {
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: p.prog})
		if err != nil {
			return fmt.Errorf("attach %s: %w", p.name, err)
		}
		if p.prog == r.sending {
			r.sendingLink = l
			continue
		}
		r.links = append(r.links, l)
	}
	if err := r.attachAccepts(); err != nil {
		// Everything else can still be reported.
		r.missing = append(r.missing, fmt.Sprintf("time in the accept queue: %v", err))
	}
	return nil
}

// attachAccepts attaches what sees accept() to the root of all control groups.
func (r *Recorder) attachAccepts() error {
	root, err := host.Default().CgroupV2Root()
	if err != nil {
		return err
	}
	links, err := bpf.AttachCgroup(root,
		bpf.CgroupProgram{At: ebpf.AttachCgroupInet4GetPeername, Program: r.objects.Accepted4},
		bpf.CgroupProgram{At: ebpf.AttachCgroupInet6GetPeername, Program: r.objects.Accepted6})
	r.links = append(r.links, links...)
	return err
}

// spareSending detaches from tcp_sendmsg_locked, which costs some per cent of a
// busy server, once what was sent can be read where it waits for its
// acknowledgement.
func (r *Recorder) spareSending() {
	if r.sendingLink == nil || !r.sentBytesFound() {
		return
	}
	// First the change of place, so that nothing is read nowhere.
	if r.objects.SendingSeen.Set(uint8(0)) == nil && !r.split && !r.contexts.published() {
		r.sendingLink.Close()
		r.sendingLink = nil
		r.follow(r.share) // calls are seen later from now on
	}
}

// listenKey is struct listen_key.
type listenKey struct {
	NetNS uint32
	Port  uint32
}

// addListeners tells the programs who listens where now, in every network
// namespace. Later ones they see themselves. The namespaces are left open for
// the caller.
func (r *Recorder) addListeners() (spaces []*host.NetNS, err error) {
	fs := host.Default()
	procs, _ := fs.Processes()
	if len(procs) == 0 {
		return nil, errors.New("no process can be seen in /proc")
	}
	var served [1024]uint64
	for inode, pid := range host.NetNamespaces(procs) {
		ns, err := fs.OpenNetNS(pid)
		if err != nil {
			r.missing = append(r.missing, fmt.Sprintf("listening sockets of network namespace %d: %v", inode, err))
			continue
		}
		spaces = append(spaces, ns)
		listeners, err := ns.Listeners()
		if err != nil {
			r.missing = append(r.missing, fmt.Sprintf("listening sockets of network namespace %d: %v", inode, err))
			continue
		}
		for _, l := range listeners {
			if l.Port == 0 {
				continue
			}
			served[l.Port>>6] |= 1 << (l.Port & 63)
			if err := r.objects.Listening.Put(listenKey{uint32(inode), uint32(l.Port)}, uint8(1)); err != nil {
				return spaces, fmt.Errorf("note listener: %w", err)
			}
		}
	}
	return spaces, r.objects.ServedPorts.Set(served)
}

// addWaiting looks for requests that came before and that nobody has read: what
// a service that stands still looks like.
func (r *Recorder) addWaiting(spaces []*host.NetNS) error {
	it, err := link.AttachIter(link.IterOptions{Program: r.objects.Waiting})
	if err != nil {
		return fmt.Errorf("attach iterator of sockets: %w", err)
	}
	defer it.Close()
	for _, ns := range spaces {
		// It looks at the namespace of the thread that opens it.
		err := ns.Do(func() error {
			sockets, err := it.Open()
			if err != nil {
				return err
			}
			defer sockets.Close()
			_, err = io.Copy(io.Discard, sockets)
			return err
		})
		if err != nil {
			return fmt.Errorf("look for waiting requests: %w", err)
		}
	}
	return nil
}

// Flush makes the kernel side hand out requests that are complete on
// connections where nothing happens any more, and those that last for over a
// second already (FlagUnfinished; once for each). It looks at every watched
// connection, some 100 ns each: call it about once a second, and Poll after it.
func (r *Recorder) Flush() error { return r.flush(0) }
