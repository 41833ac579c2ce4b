package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/slowray/slowray/internal/sense/callerror"
	"github.com/slowray/slowray/internal/sense/callstack"
	"github.com/slowray/slowray/internal/sense/callstack/interpreter"
	"github.com/slowray/slowray/internal/sense/connect"
	"github.com/slowray/slowray/internal/sense/dns"
	"github.com/slowray/slowray/internal/sense/drop"
	"github.com/slowray/slowray/internal/sense/flow"
	"github.com/slowray/slowray/internal/sense/function"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/sense/socket"
	"github.com/slowray/slowray/internal/sense/stack"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// moment is how long what needs some time is tried.
const moment = 50 * time.Millisecond

// probe is one part that is tried.
type probe struct {
	name, what string
	object     string // the BPF object
	lost       []string
	// begin does it for real, and takes it back; partly is what works less than
	// it should, err why it does not work at all.
	begin func(context.Context) (partly []string, err error)
}

func (p *probe) try(ctx context.Context) Part {
	part := Part{Name: p.name, What: p.what, Object: p.object, State: Works, Because: []string{}, Lost: []string{}}
	began := time.Now()
	partly, err := p.begin(ctx)
	part.StartMS = float64(time.Since(began).Microseconds()) / 1000
	switch {
	case err != nil:
		part.State, part.Because = Missing, []string{err.Error()}
	case len(partly) > 0:
		part.State, part.Because = Partly, partly
	}
	if part.State != Works {
		part.Lost = p.lost
	}
	return part
}

// probes are all parts, one for each BPF object at least.
var probes = []probe{
	{"requests", "every request on every TCP connection, with its time breakdown", "request",
		[]string{"slowray requests", "slowray top", "most causes of slowray why"}, tryRequests},
	{"requests of HTTP/2", "requests that run side by side on a connection, each by itself", "http2", []string{"single requests of HTTP/2 and gRPC"}, tryStreams},
	{"requests of HTTP/2 under TLS", "the same, by functions of the process's TLS library", "clear", []string{"single requests of HTTP/2 and gRPC under TLS"}, tryClear},
	{"connections", "results of connect() and accept()", "connect", []string{"calls that fail for lack of a port or a descriptor"}, tryConnect},
	{"nameservers", "queries over UDP, how long their answers take and which have none", "dns", []string{"causes about names"}, tryDNS},
	{"sockets", "lists of sockets and their owners", "socket", []string{"nothing: they are read in more expensive ways"}, trySockets},
	{"CPU samples", "what processes and kernel threads execute", "profile", []string{"causes that name functions"}, tryProfile},
	{"failing calls", "system calls that fail, by error, process and file", "callerror", []string{"causes about what a host lacks: room, files, memory"}, tryCallErrors},
	{"dropped packets", "packets that the kernel drops, where and why", "drop", []string{"slowray drops", "the place of a loss on this host"}, tryDrops},
	{"packets", "what comes in when packets take a CPU", "flow", []string{"the source of a flood"}, tryFlow},
	{"call stacks on the CPU", "flame graphs of what runs", "stacks", []string{"slowray flame"}, tryStacks(false)},
	{"call stacks off the CPU", "flame graphs of what waits", "stacks", []string{"slowray flame --off-cpu"}, tryStacks(true)},
	{"frames of interpreters", "Python, Java, PHP, Node and Ruby in stacks", "", []string{"names of functions of these languages"}, tryInterpreters},
	{"tracepoints", "calls of tracepoints and system calls", "function", []string{"slowray func kernel"}, tryTracepoint},
	{"functions", "calls of any function of a program or a library", "function", []string{"slowray func"}, tryFunction},
}

func tryRequests(context.Context) ([]string, error) {
	r, err := request.Start(request.Options{Split: true})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Stats().Missing, nil
}

func tryStreams(context.Context) ([]string, error) {
	r, err := request.Start(request.Options{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return nil, r.TellStreams()
}

func tryClear(context.Context) ([]string, error) {
	r, err := request.Start(request.Options{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return nil, r.TellClear()
}

func tryConnect(context.Context) ([]string, error) {
	w, err := connect.Start(nil)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := w.WatchCalls(); err != nil {
		return []string{"accept() and connect() to unix sockets: " + err.Error()}, nil
	}
	w.RestCalls()
	return nil, nil
}

func tryDNS(context.Context) ([]string, error) {
	root, err := host.Default().CgroupV2Root()
	if err != nil {
		return nil, err
	}
	w, err := dns.Start(root, nil, nil)
	if err != nil {
		return nil, err
	}
	w.Close()
	return nil, nil
}

func tryCallErrors(context.Context) ([]string, error) {
	w, err := callerror.Load(host.Default().Proc)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := w.Watch(); err != nil {
		return nil, err
	}
	w.Rest()
	return nil, nil
}

func tryDrops(context.Context) ([]string, error) {
	w, err := drop.Start()
	if err != nil {
		return nil, err
	}
	explains := w.Explains()
	if err := w.Close(); err != nil {
		return nil, err
	}
	if !explains {
		return []string{"this kernel does not tell why it drops a packet (needs Linux 5.17)"}, nil
	}
	return nil, nil
}

func trySockets(context.Context) ([]string, error) {
	it, err := socket.Open()
	if err != nil {
		return nil, err
	}
	defer it.Close()
	if _, err := it.Owners(func(uint64) bool { return false }); err != nil {
		return []string{"owners of sockets: " + err.Error()}, nil
	}
	return nil, nil
}

func tryProfile(context.Context) ([]string, error) {
	p, err := stack.Start()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := p.Want(os.Getpid()); err != nil {
		return []string{"user stacks: " + err.Error()}, nil
	}
	if _, _, err := p.Read(stack.Detail{PortSearch: true}); err != nil {
		return []string{"functions of the kernel: " + err.Error()}, nil
	}
	return nil, nil
}

func tryFlow(context.Context) ([]string, error) {
	s, err := flow.Load()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return nil, s.Look(moment)
}

func tryStacks(off bool) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		s, err := callstack.Record(ctx, moment, callstack.Options{PIDs: []int{os.Getpid()}, OnCPU: !off, OffCPU: off})
		if err != nil {
			return nil, err
		}
		return s.Notes, nil
	}
}

func tryInterpreters(context.Context) ([]string, error) {
	space := symbol.NewSpace("/proc")
	defer space.Close()
	u, err := interpreter.Start(space, []int{os.Getpid()})
	if err != nil {
		return nil, err
	}
	defer u.Close()
	if trouble := u.Trouble(); trouble != "" {
		return []string{trouble}, nil
	}
	return nil, nil
}

func tryTracepoint(ctx context.Context) ([]string, error) {
	_, err := watchFunction(ctx, function.Options{Target: "kernel", Symbols: []string{"tracepoint:sched:sched_process_exec"}})
	return nil, err
}

func tryFunction(ctx context.Context) ([]string, error) {
	_, err := countSelf(ctx)
	return nil, err
}

// countSelf counts calls in a program that is there for sure, this one, and says what a
// hit of a probe takes.
func countSelf(ctx context.Context) (perHit time.Duration, err error) {
	path, err := self()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	return watchFunction(ctx, function.Options{Target: path, PID: os.Getpid(), Symbols: []string{"main.main"}, CountOnly: true})
}

// watchFunction attaches and detaches, and says what a hit takes.
func watchFunction(ctx context.Context, opt function.Options) (perHit time.Duration, err error) {
	opt.MaxRate = 100_000
	plan, err := function.Prepare(ctx, opt)
	if err != nil {
		return 0, err
	}
	defer plan.Close()
	if functions, _ := plan.Size(); functions == 0 {
		return 0, errors.New("nothing to watch was found")
	}
	t, err := function.Start(plan)
	if err != nil {
		return 0, err
	}
	t.Close()
	return t.PerHit(), nil
}
