package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/signal"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/container"
	"github.com/slowray/slowray/internal/sense/dns"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/kube"
	"github.com/slowray/slowray/internal/sense/nat"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/watch"
)

type requestsCmd struct {
	Port       []int          `placeholder:"N" sep:"," help:"Only requests answered at this TCP port, here or elsewhere; may be repeated."`
	PID        *int           `name:"pid" placeholder:"N" help:"Only requests that this process, its master or their workers answer or send."`
	Peer       *string        `placeholder:"ADDR[/N]" help:"Only connections with this address, or network, at the other end."`
	Side       *string        `placeholder:"SIDE" complete:"sides" help:"Only served: answered on this host; only called: sent from this host."`
	Slow       *time.Duration `placeholder:"D" help:"Only requests that took at least this long."`
	For        *time.Duration `placeholder:"D" help:"How long to record; until Ctrl-C when not given. With --at: so much of the history (1m)."`
	Format     string         `default:"text" placeholder:"F" complete:"formats" help:"text, json (one object per line, schema slowray.request/1) or tcprt (TCPRT's log, version 6)."`
	JSON       bool           `name:"json" help:"The same as --format json."`
	StatsEvery *time.Duration `placeholder:"D" help:"With --format tcprt: how often the statistics of each port are written (60s)."`
	Labels     bool           `help:"Also keep what was asked for: method and path, statement or command."`
	Trace      *string        `placeholder:"ID" help:"Only requests of this trace (its ID in traceparent, or at least 8 digits that it begins with), as a waterfall."`
	Limit      *int           `placeholder:"N" help:"End after so many requests."`
	From       *string        `placeholder:"FILE" help:"Read a capture of packets (pcap, pcapng) or a log of TCPRT (version 6), also compressed, instead of recording; needs no root."`
	podFlag    `embed:""`
	kubeFlags  `embed:""`
	budgetFlag `embed:""`
	atFlags    `embed:""`
}

// partsHelp tells what a request's time is split into, in the order in which
// one spends it.
const partsHelp = `A request's time is split into parts that add up to its total; docs/ledger.md tells more of each:

  accept_wait  connection complete, not yet accepted
  tls          handshake of TLS on a new connection
  upload       first to last byte of the request
  recv_wait    the request is in the socket, not yet read (called: the answer)
  server       read, no byte of the answer yet (called: the other end's time); of it
               cpu on a CPU, runq on the run queue, throttled by the CPU quota, lock,
               disk, pipe, net a socket that is no call, sleep, other, call waits for
               another service, handoff passed on to a thread that was not followed
  stall        a pause between bytes of the answer: the application's time
  send_wait    bytes of the answer wait for a window, a buffer, or Nagle
  network      on its way
  retrans      added by retransmissions
  unaccounted  known to have passed, not with what
  ack_delay    acknowledged late: nobody waited, not part of the total

Before the parts of a connection's first call, in (parentheses) as it is before its start and no part of its total: dns, the lookup of the name, where one over UDP was seen; connect, the handshake of TCP; idle, open and nobody asked, as in a pool.

served: answered on this host; called: sent from this host to another service. Where both ends are here, a request is reported twice.

In [brackets]: preexisting, the connection was open before slowray began to record; slow, kept because it took long, whatever the sampling. The others are in docs/ledger.md.`

// Help is printed by --help, above the flags.
func (*requestsCmd) Help() string { return partsHelp }

// defaultStatsEvery is TCPRT's own interval.
const defaultStatsEvery = 60 * time.Second

// Validate is called by the command line parser.
func (c *requestsCmd) Validate() error {
	if err := c.budgetFlag.validate(); err != nil {
		return err
	}
	if err := cmp.Or(checkPorts(c.Port), c.podFlag.validate()); err != nil {
		return err
	}
	if _, err := sideNamed(c.Side); err != nil {
		return err
	}
	if _, err := c.peer(); err != nil {
		return err
	}
	if _, err := c.trace(); err != nil {
		return err
	}
	if _, ok := requestFormats[c.Format]; !ok {
		return fmt.Errorf("--format %s: must be text, json or tcprt", c.Format)
	}
	if c.JSON {
		if c.Format == formatTCPRT {
			return errors.New("--json: --format tcprt is another one")
		}
		c.Format = formatJSON
	}
	switch {
	case c.Pod != nil && c.From != nil:
		return errors.New("--from: a capture knows no pods; --pod does not go with it")
	case c.PID != nil && *c.PID < 1:
		return fmt.Errorf("--pid %d: must be positive", *c.PID)
	case c.Slow != nil && *c.Slow <= 0:
		return fmt.Errorf("--slow %s: must be more than nothing", *c.Slow)
	case c.For != nil && *c.For <= 0:
		return fmt.Errorf("--for %s: must be more than nothing", *c.For)
	case c.At != nil && c.From != nil:
		return errors.New("--from is for captures and --at for the history: give one of them")
	case c.At != nil && c.StatsEvery != nil:
		return errors.New("--at: --stats-every is for requests that are recorded now")
	case c.For != nil && c.At != nil && *c.For > longestRange:
		return fmt.Errorf("--for %s: must be at most %s", *c.For, longestRange)
	case c.From != nil && (c.For != nil || c.PID != nil):
		return errors.New("--from: a capture has its own length and knows no processes; --for and --pid do not go with it")
	case c.Limit != nil && *c.Limit < 1:
		return fmt.Errorf("--limit %d: must be positive", *c.Limit)
	case c.StatsEvery != nil && *c.StatsEvery < time.Second:
		return fmt.Errorf("--stats-every %s: must be at least 1s", *c.StatsEvery)
	case c.StatsEvery != nil && c.Format != formatTCPRT:
		return errors.New("--stats-every goes with --format tcprt")
	case c.Trace != nil && (c.Format == formatTCPRT || c.From != nil):
		return errors.New("--trace: is for requests of this host's kernel or history, as text or json")
	case c.Labels && c.Format == formatTCPRT:
		return errors.New("--labels: --format tcprt has no place for them")
	}
	return nil
}

// checkPorts refuses what is no port. A --port without a number, as of an unset
// variable, must not mean all ports.
func checkPorts(ports []int) error {
	if ports != nil && len(ports) == 0 {
		return errors.New("--port: is empty")
	}
	for _, port := range ports {
		if port < 1 || port > 65535 {
			return fmt.Errorf("--port %d: must be 1 to 65535", port)
		}
	}
	return nil
}

// sideNamed is the side of this name, 0 for both.
func sideNamed(name *string) (observe.Side, error) {
	if name == nil {
		return 0, nil
	}
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		if *name == side.String() {
			return side, nil
		}
	}
	return 0, fmt.Errorf("--side %q: must be served or called", *name)
}

// trace is the trace that was asked for, "" for any request.
func (c *requestsCmd) trace() (observe.TraceMatch, error) {
	if c.Trace == nil {
		return "", nil
	}
	m, err := observe.ParseTraceMatch(*c.Trace)
	if err != nil {
		return "", fmt.Errorf("--trace %q: %w", *c.Trace, err)
	}
	return m, nil
}

// peer is the network that was asked for, an invalid one for any.
func (c *requestsCmd) peer() (netip.Prefix, error) {
	if c.Peer == nil {
		return netip.Prefix{}, nil
	}
	if addr, err := netip.ParseAddr(*c.Peer); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(*c.Peer)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("--peer %q: must be an IP address, or a network as 10.0.0.0/8", *c.Peer)
	}
	return prefix, nil
}

// Run writes requests until the time is up, enough were written, or whoever
// reads them has gone.
func (c *requestsCmd) Run(ctx context.Context, s *streams) error {
	if c.From != nil {
		return c.runCapture(s)
	}
	if c.At != nil {
		return c.runAt(ctx, s)
	}
	pods := c.start(ctx)
	defer pods.Close()
	names := namesWithContainers(pods)
	now := time.Now().UnixNano()
	if c.PID != nil {
		if _, ok := names.Of(*c.PID, now); !ok {
			return fmt.Errorf("requests: there is no process with pid %d", *c.PID)
		}
	}
	of, err := c.of(ctx, names, pods)
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	side, _ := sideNamed(c.Side)
	peer, _ := c.peer()
	watch.RaisePriority() // on a busy host the rings would run full
	opt := request.Options{Slow: value(c.Slow), Labels: c.Labels || c.Trace != nil, Connections: c.Format == formatTCPRT, Budget: c.share(), Split: c.Format != formatTCPRT}
	if !opt.Split {
		opt.Ports, opt.Side = c.Port, side // with a split, what waits for a call needs the call recorded too
	}
	recorder, err := request.Start(opt)
	if err != nil {
		return err
	}
	src := request.NewStream(recorder)
	defer src.Close()
	if c.Format != formatTCPRT && side != observe.Served { // it has no place for lookups
		lookups, err := watchLookups(src)
		if err != nil {
			fmt.Fprintln(s.err, "slowray: not seen: lookups of names before calls:", err)
		} else {
			defer lookups.Close()
		}
	}
	names.Gone = src.Caller

	stream := &requestStream{
		src: src, out: s.out,
		format:    requestFormats[c.Format],
		style:     terminalStyle(s.out),
		processOf: processOf(names), pods: pods, nat: nat.New(host.Default()),
		ports: c.Port, side: side, peer: peer, slow: value(c.Slow), limit: value(c.Limit), gone: readerGone(s.out),
	}
	defer stream.nat.Close()
	if c.PID != nil {
		family := names.Family(*c.PID, now)
		stream.ours = func(r *observe.Request) bool {
			return r.PID != 0 && names.Family(r.PID, r.StartNS+r.TotalNS()) == family
		}
	}
	if of != nil {
		stream.ours = both(stream.ours, func(r *observe.Request) bool { return of(r.PID, r.StartNS+r.TotalNS()) })
	}
	if c.Format == formatTCPRT {
		stream.stats = newPortStats(value(c.StatsEvery), stream.ours == nil && !peer.IsValid())
		recorder.OnClosed(stream.closed)
	}
	if c.For != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *c.For)
		defer cancel()
	}
	// Whoever reads the lines may leave, as head does: that is an end like any
	// other and must not look like a crash.
	signal.Ignore(syscall.SIGPIPE)
	slow := ""
	if c.Slow != nil {
		slow = fmt.Sprintf(" that take at least %s", *c.Slow)
	}
	fmt.Fprintln(s.err, "slowray: recording requests"+slow+untilText(c.For))
	began := time.Now()
	switch stream.trace, _ = c.trace(); {
	case stream.trace != "" && c.Format == formatText:
		stream.hops = &hops{}
		stream.format.header = nil
	case c.Format == formatText:
		stream.table = request.NewTable(began)
		stream.table.Master = names.Master
	}
	err = stream.run(ctx)
	if err == nil {
		err = cmp.Or(stream.hops.write(s, stream.trace, src.Stats().Follow), stream.summary(began, time.Now(), c.why()))
	}
	c.tellLosses(s, src.Stats())
	return err
}

// watchLookups begins to see what nameservers answer, for the calls of src.
func watchLookups(src *request.Stream) (*dns.Watcher, error) {
	root, err := host.Default().CgroupV2Root()
	if err != nil {
		return nil, err
	}
	return dns.Start(root, func() bool {
		stats := src.Stats()
		return stats.Weight > 1 || stats.Split > 1
	}, src.Lookups())
}

// both is what passes two filters, of which the first may be nil.
func both(a, b func(*observe.Request) bool) func(*observe.Request) bool {
	if a == nil {
		return b
	}
	return func(r *observe.Request) bool { return a(r) && b(r) }
}

// why is the command that says what the requests wait for.
func (c *requestsCmd) why() shell.Command {
	switch {
	case len(c.Port) == 1:
		return shell.Line("slowray why --port %s", c.Port[0])
	case c.PID != nil:
		return shell.Line("slowray why --pid %s", *c.PID)
	}
	return shell.Line("slowray why")
}

func untilText(window *time.Duration) string {
	if window == nil {
		return " (Ctrl-C ends)"
	}
	return " for " + window.String()
}

// namesWithContainers names processes, and the containers and pods that they are in.
func namesWithContainers(k *kube.Kube) *host.Names {
	names := host.Default().Names()
	names.ContainerName = containerReader().NewNamer().Name
	if k != nil {
		names.Workload = k.Container
	}
	return names
}

func containerReader() container.Reader {
	return container.Reader{Proc: host.Default().Proc, Root: "/"}
}

// processOf names processes for the report.
func processOf(names *host.Names) observe.IdentityOf {
	return func(pid int, at int64) (observe.Identity, bool) {
		id, ok := names.Of(pid, at)
		return id.Identity, ok
	}
}

// tellLosses says which requests have no line although they were asked for,
// and what the kernel could not show.
func (c *requestsCmd) tellLosses(s *streams, lost request.Stats) {
	tell := func(n uint64, what string) {
		if n > 0 {
			fmt.Fprintf(s.err, "slowray: %s %s\n", figure.Count(n), what)
		}
	}
	tell(lost.Lost, "records were lost: the buffer was full")
	tell(lost.Sampled, fmt.Sprintf("requests were only counted, to stay within %g %% of the CPU (see --budget)", c.Budget))
	tell(lost.LeftOut, fmt.Sprintf("requests have no line: their connections were left out, to stay within %g %% of the CPU (see --budget)", c.Budget))
	tell(lost.Connections, "connections were not watched because kernel memory ran out")
	tell(lost.Headers, observe.LossHeaders)
	tell(lost.Blocks, observe.LossBlocks)
	tell(lost.Contexts, observe.LossContexts)
	tell(lost.Missed, "events of connections were kept from slowray by the kernel: requests may lack a part")
	for _, what := range lost.Missing {
		fmt.Fprintln(s.err, "slowray: not seen: "+what)
	}
}
