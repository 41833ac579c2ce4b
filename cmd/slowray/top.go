package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/top"
	"github.com/slowray/slowray/internal/watch"
)

type topCmd struct {
	Port       []int         `placeholder:"N" sep:"," help:"Only the service at this TCP port, here or elsewhere, and what it calls; may be repeated."`
	PID        *int          `name:"pid" placeholder:"N" help:"Only what this process, its master or their workers answer or call."`
	Side       *string       `placeholder:"SIDE" complete:"sides" help:"Only served: answered on this host; only called: sent from this host."`
	Labels     bool          `help:"Also keep what was asked for: method and path, statement or command."`
	Every      time.Duration `default:"1s" placeholder:"D" help:"How often the table is renewed; with --once how long to watch (${default})."`
	Once       bool          `help:"Print the table once and end, as is done without a terminal."`
	JSON       bool          `name:"json" help:"With --once: print it as JSON."`
	podFlag    `embed:""`
	kubeFlags  `embed:""`
	budgetFlag `embed:""`
}

// Help is printed by --help, above the flags.
func (*topCmd) Help() string {
	return "On a terminal: Enter opens an endpoint and then one of its slowest requests, s and r change the order, / filters, ? tells all keys.\n\n" + partsHelp
}

// Validate is called by the command line parser.
func (c *topCmd) Validate() error {
	if err := c.budgetFlag.validate(); err != nil {
		return err
	}
	if err := cmp.Or(checkPorts(c.Port), c.podFlag.validate()); err != nil {
		return err
	}
	if _, err := sideNamed(c.Side); err != nil {
		return err
	}
	switch {
	case c.PID != nil && *c.PID < 1:
		return fmt.Errorf("--pid %d: must be positive", *c.PID)
	case c.Every < 100*time.Millisecond || c.Every > time.Hour:
		return fmt.Errorf("--every %s: must be 100ms to 1h", c.Every)
	case c.JSON && !c.Once:
		return fmt.Errorf("--json goes with --once")
	}
	return nil
}

// Run shows the table until it is quit, or prints it once.
func (c *topCmd) Run(ctx context.Context, s *streams) error {
	pods := c.start(ctx)
	defer pods.Close()
	names := namesWithContainers(pods)
	opt := top.Options{
		Every: c.Every,
		Master: func(pid int) (int, string) {
			master, comm := names.Master(pid)
			id, _ := names.Of(master, time.Now().UnixNano())
			if in := cmp.Or(id.Workload.Controller(), id.ContainerName); in != "" {
				comm += "@" + in
			}
			return master, comm
		},
		ProcessOf: processOf(names),
		Workload: func(pid int, addr netip.Addr, at int64) observe.Workload {
			id, _ := names.Of(pid, at)
			return pods.PeerOf(&id.Identity, addr, at)
		},
		NoColor: os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb", // no-color.org
	}
	if c.PID != nil {
		now := time.Now().UnixNano()
		if _, ok := names.Of(*c.PID, now); !ok {
			return fmt.Errorf("top: there is no process with pid %d", *c.PID)
		}
		opt.PID = names.Family(*c.PID, now)
	}
	var err error
	if opt.Of, err = c.of(ctx, names, pods); err != nil {
		return fmt.Errorf("top: %w", err)
	}
	opt.Ports = c.Port
	opt.Side, _ = sideNamed(c.Side)
	watch.RaisePriority()
	// All are recorded: a request that waits for a call is split so only where the call is
	// recorded too, and who answers at a port tells whose calls belong to it.
	stream, err := request.StartStream(request.Options{Labels: c.Labels, Split: true, Budget: c.share()})
	if err != nil {
		return err
	}
	defer stream.Close()
	names.Gone = stream.Caller
	_, in := commandline.TerminalColumns(os.Stdin)
	if !c.Once && in && commandline.Redraws(s.out) {
		if err := top.Live(ctx, stream, opt, os.Stdin, s.out); err != nil {
			return fmt.Errorf("top: %w", err)
		}
		return nil
	}
	snap, err := top.Once(ctx, stream, opt)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	if c.JSON {
		return top.JSON(s.out, &snap, opt.ProcessOf)
	}
	return top.Text(s.out, &snap)
}
