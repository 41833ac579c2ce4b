package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/onnodes"
)

type whyCmd struct {
	access
	ephemeral
	Target string        `arg:"" name:"workload" help:"deploy/cart, svc/cart, pod/cart-1, node/node-7, …"`
	Flags  []string      `arg:"" optional:"" name:"flags" help:"After --: further flags of slowray why."`
	For    time.Duration `default:"10s" placeholder:"D" help:"How long to watch (${default})."`
	All    bool          `short:"v" help:"Print everything: all evidence, every endpoint, and why each cause is ruled out."`
	JSON   bool          `name:"json" help:"Print an array of the reports, each with its node and pods."`
}

// Run looks at all nodes at the same time, and prints one report.
func (c *whyCmd) Run(ctx context.Context, s *streams) (int, error) {
	run, spots, err := everyNode(ctx, &c.access, &c.ephemeral, c.Target)
	if err != nil {
		return 0, err
	}
	which := c.Target + " on " + spots[0].Node
	if len(spots) > 1 {
		which = fmt.Sprintf("%s on %d nodes", c.Target, len(spots))
	}
	fmt.Fprintf(s.err, "slowray: watching %s for %s\n", which, c.For)
	args := []string{"why", "--for=" + c.For.String()}
	if c.All {
		args = append(args, "-v")
	}
	results := onnodes.Look(ctx, run, spots, append(args, c.Flags...), c.JSON)
	if c.JSON {
		err = onnodes.JSON(s.out, results)
	} else {
		err = onnodes.Text(s.out, results)
	}
	return onnodes.Worst(results), err
}

type requestsCmd struct {
	access
	ephemeral
	Target string        `arg:"" name:"workload" help:"deploy/cart, svc/cart, pod/cart-1, node/node-7, …"`
	Flags  []string      `arg:"" optional:"" name:"flags" help:"After --: further flags of slowray requests."`
	For    time.Duration `default:"1h" placeholder:"D" help:"How long to record, unless Ctrl-C ends it (${default})."`
	JSON   bool          `name:"json" help:"One JSON object per request (schema slowray.request/1)."`
}

// Run passes on the requests of all nodes as they come.
func (c *requestsCmd) Run(ctx context.Context, s *streams) (int, error) {
	run, spots, err := everyNode(ctx, &c.access, &c.ephemeral, c.Target)
	if err != nil {
		return 0, err
	}
	args := []string{"requests", "--for=" + c.For.String()}
	if c.JSON {
		args = append(args, "--format=json")
	}
	status := onnodes.Stream(ctx, run, spots, append(args, c.Flags...), !c.JSON, s.out, s.err)
	if ctx.Err() != nil {
		return commandline.ExitNothing, nil // Ctrl-C is how it ends
	}
	return status, nil
}

type topCmd struct {
	access
	Target string   `arg:"" name:"workload" help:"deploy/cart, svc/cart, pod/cart-1, node/node-7, …: its node, or the first of them."`
	Flags  []string `arg:"" optional:"" name:"flags" help:"After --: further flags of slowray top."`
}

// Run shows the table on this terminal.
func (c *topCmd) Run(ctx context.Context, s *streams) (int, error) {
	cluster, spot, err := oneNode(ctx, &c.access, c.Target, s)
	if err != nil {
		return 0, err
	}
	filter, err := spot.Workload()
	if err != nil {
		return 0, err
	}
	args := slices.Concat([]string{"top"}, c.Flags, filter)
	in := int(os.Stdin.Fd())
	if !term.IsTerminal(in) || s.out != os.Stdout || !term.IsTerminal(int(os.Stdout.Fd())) {
		return cluster.OnNode(ctx, spot.Node, args, nil, s.out, s.err)
	}
	was, err := term.MakeRaw(in)
	if err != nil {
		return 0, err
	}
	defer func() { _ = term.Restore(in, was) }()
	return cluster.OnNode(ctx, spot.Node, args, &onnodes.Terminal{In: os.Stdin, Sizes: newSizes(ctx)}, s.out, s.err)
}

// sizes are those that the terminal has, the first at once.
type sizes struct {
	ctx     context.Context
	changed chan os.Signal
}

func newSizes(ctx context.Context) *sizes {
	z := &sizes{ctx, make(chan os.Signal, 1)}
	z.changed <- syscall.SIGWINCH
	signal.Notify(z.changed, syscall.SIGWINCH)
	return z
}

// Next waits for the next size.
func (z *sizes) Next() *remotecommand.TerminalSize {
	select {
	case <-z.ctx.Done():
		return nil
	case <-z.changed:
	}
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(min(width, 1<<16-1)), Height: uint16(min(height, 1<<16-1))}
}

type waitCmd struct {
	access
	Target    string   `arg:"" name:"workload" help:"deploy/cart, pod/cart-1, node/node-7, …: its node, or the first of them."`
	PID       string   `arg:"" optional:"" name:"pid" help:"The process, by the number that kubectl slowray why prints. Without it the first one of the pod, or of the workload's first pod."`
	Flags     []string `arg:"" optional:"" name:"flags" help:"After --: further flags of slowray wait."`
	Container string   `short:"c" placeholder:"NAME" help:"Without pid, in a pod of several containers: which."`
}

// process is the pid that was given, empty where there is none, and flags: what comes after
// -- takes the place of a pid that is not given.
func (c *waitCmd) process() (pid string, flags []string, err error) {
	if strings.HasPrefix(c.PID, "-") {
		return "", append([]string{c.PID}, c.Flags...), nil
	}
	if _, err := strconv.ParseUint(c.PID, 10, 31); c.PID != "" && err != nil {
		return "", nil, fmt.Errorf("%q is no pid: flags of slowray wait come after --", c.PID)
	}
	return c.PID, c.Flags, nil
}

// Validate is called by the command line parser.
func (c *waitCmd) Validate() error {
	pid, _, err := c.process()
	if pid != "" && c.Container != "" {
		return errors.New("give a pid or --container, not both")
	}
	return err
}

// Run looks on one node.
func (c *waitCmd) Run(ctx context.Context, s *streams) (int, error) {
	cluster, spot, err := oneNode(ctx, &c.access, c.Target, s)
	if err != nil {
		return 0, err
	}
	which, flags, err := c.process()
	if err == nil && which == "" {
		which, err = spot.First(c.Container)
	}
	if err != nil {
		return 0, err
	}
	return cluster.OnNode(ctx, spot.Node, append([]string{"wait", which}, flags...), nil, s.out, s.err)
}

type pageCmd struct {
	access
	Target string `arg:"" name:"workload" help:"deploy/cart, pod/cart-1, node/node-7, …: its node, or the first of them."`
	Port   int    `default:"7788" placeholder:"N" help:"Port on this machine's loopback (${default}; 0: any that is free)."`
}

// Run forwards until Ctrl-C.
func (c *pageCmd) Run(ctx context.Context, s *streams) (int, error) {
	cluster, spot, err := oneNode(ctx, &c.access, c.Target, s)
	if err != nil {
		return 0, err
	}
	return commandline.ExitNothing, cluster.Page(ctx, spot.Node, c.Port, func(address string) {
		fmt.Fprintf(s.out, "%s  the page of node %s (Ctrl-C ends it)\n", address, spot.Node)
	})
}

// everyNode is the nodes of a target, and what runs slowray on them.
func everyNode(ctx context.Context, a *access, e *ephemeral, target string) (onnodes.Runner, []onnodes.Spot, error) {
	cluster, spots, err := a.spots(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	run, err := e.runner(ctx, cluster, spots)
	return run, spots, err
}

// oneNode is the node of a target, or the first of them, and tells of the others.
func oneNode(ctx context.Context, a *access, target string, s *streams) (*onnodes.Cluster, onnodes.Spot, error) {
	cluster, spots, err := a.spots(ctx, target)
	if err != nil {
		return nil, onnodes.Spot{}, err
	}
	for _, other := range spots[1:] {
		fmt.Fprintf(s.err, "slowray: %s is on %s too: name node/%s or a pod for that\n", target, other.Node, other.Node)
	}
	return cluster, spots[0], nil
}
