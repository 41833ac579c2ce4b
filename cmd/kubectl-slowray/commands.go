package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
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
	JSON   bool          `name:"json" help:"Print an array of the reports, each with its node and pod."`
	Pods   int           `default:"16" placeholder:"N" help:"Look at so many pods (${default}; 0: all)."`
}

// Run looks at all pods at the same time, and prints one report.
func (c *whyCmd) Run(ctx context.Context, s *streams) (int, error) {
	cluster, err := c.connect()
	if err != nil {
		return 0, err
	}
	all, err := cluster.Spots(ctx, c.Target)
	if err != nil {
		return 0, err
	}
	run, err := c.runner(ctx, cluster)
	if err != nil {
		return 0, err
	}
	spots := onnodes.Choose(all, c.Pods)
	which := fmt.Sprintf("%d pods of %s", len(spots), c.Target)
	if len(spots) < len(all) {
		which = fmt.Sprintf("%d of the %d pods of %s (--pods 0: all)", len(spots), len(all), c.Target)
	} else if len(all) == 1 {
		which = c.Target + " on " + all[0].Node
	}
	fmt.Fprintf(s.err, "slowray: watching %s for %s\n", which, c.For)
	args := []string{"why", "--for=" + c.For.String()}
	if c.JSON {
		args = append(args, "--json")
	}
	if c.All {
		args = append(args, "-v")
	}
	results := onnodes.Look(ctx, run, spots, append(args, c.Flags...))
	if err := ctx.Err(); err != nil {
		return 0, errors.New("ended before slowray has reported")
	}
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
	cluster, err := c.connect()
	if err != nil {
		return 0, err
	}
	spots, err := cluster.Spots(ctx, c.Target)
	if err != nil {
		return 0, err
	}
	run, err := c.runner(ctx, cluster)
	if err != nil {
		return 0, err
	}
	args := []string{"requests", "--for=" + c.For.String()}
	if c.JSON {
		args = append(args, "--format=json")
	}
	status := onnodes.Stream(ctx, run, onnodes.Nodes(spots), append(args, c.Flags...), !c.JSON, s.out, s.err)
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
	cluster, node, err := oneNode(ctx, &c.access, c.Target, s)
	if err != nil {
		return 0, err
	}
	args := append([]string{"top"}, c.Flags...)
	in := int(os.Stdin.Fd())
	if !term.IsTerminal(in) || s.out != os.Stdout || !term.IsTerminal(int(os.Stdout.Fd())) {
		return cluster.OnNode(ctx, node, args, nil, s.out, s.err)
	}
	was, err := term.MakeRaw(in)
	if err != nil {
		return 0, err
	}
	defer func() { _ = term.Restore(in, was) }()
	return cluster.OnNode(ctx, node, args, &onnodes.Terminal{In: os.Stdin, Sizes: newSizes(ctx)}, s.out, s.err)
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
	Target string   `arg:"" name:"workload" help:"deploy/cart, pod/cart-1, node/node-7, …: its node, or the first of them."`
	PID    int      `arg:"" name:"pid" help:"The process, by the number that kubectl slowray why prints."`
	Flags  []string `arg:"" optional:"" name:"flags" help:"After --: further flags of slowray wait."`
}

// Run looks on one node.
func (c *waitCmd) Run(ctx context.Context, s *streams) (int, error) {
	cluster, node, err := oneNode(ctx, &c.access, c.Target, s)
	if err != nil {
		return 0, err
	}
	return cluster.OnNode(ctx, node, append([]string{"wait", strconv.Itoa(c.PID)}, c.Flags...), nil, s.out, s.err)
}

type pageCmd struct {
	access
	Target string `arg:"" name:"workload" help:"deploy/cart, pod/cart-1, node/node-7, …: its node, or the first of them."`
	Port   int    `default:"7788" placeholder:"N" help:"Port on this machine's loopback (${default}; 0: any that is free)."`
}

// Run forwards until Ctrl-C.
func (c *pageCmd) Run(ctx context.Context, s *streams) (int, error) {
	cluster, node, err := oneNode(ctx, &c.access, c.Target, s)
	if err != nil {
		return 0, err
	}
	return commandline.ExitNothing, cluster.Page(ctx, node, c.Port, func(address string) {
		fmt.Fprintf(s.out, "%s  the page of node %s (Ctrl-C ends it)\n", address, node)
	})
}

// oneNode is the node of a target, and tells of the others.
func oneNode(ctx context.Context, a *access, target string, s *streams) (*onnodes.Cluster, string, error) {
	cluster, err := a.connect()
	if err != nil {
		return nil, "", err
	}
	spots, err := cluster.Spots(ctx, target)
	if err != nil {
		return nil, "", err
	}
	nodes := onnodes.Nodes(spots)
	for _, n := range nodes[1:] {
		fmt.Fprintf(s.err, "slowray: %s is on %s too: name node/%s for that\n", target, n.Node, n.Node)
	}
	return cluster, nodes[0].Node, nil
}
