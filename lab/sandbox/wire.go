package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/slowray/slowray/lab/drop"
	"github.com/slowray/slowray/lab/link"
)

// Wire is what joins the server side to the client or the backend side. The
// zero value is a veth pair that loses nothing. Other sides are always "far".
type Wire struct {
	// Emulated asks for a link of package link instead of the veth pair.
	Emulated        bool
	ToServer, ToFar link.Settings
	PickToServer    link.Pick // nothing is picked if Every is 0
	PickToFar       link.Pick
	Seed            uint64
	DropAtServer    drop.Rule // of a veth pair: packets that a BPF program loses as they come in
	DropAtFar       drop.Rule
	Routers         [MaxRouters]Router // on the way, the first next to the server side; of veth pairs
}

// Join is a wire that is up.
type Join struct {
	Link        *link.Link    // nil for a veth pair; its end A is the far one
	AtServer    *drop.Dropper // nil where nothing is dropped
	AtFar       *drop.Dropper
	Routers     []*RouterUp
	server, far end
}

// end is one end of a wire.
type end struct {
	side *Side
	dev  string
	addr string // with prefix length
}

// join connects two sides by a wire.
func (b *Box) join(ctx context.Context, w Wire, server, far end) (*Join, error) {
	j := &Join{server: server, far: far}
	for _, e := range []end{server, far} {
		if _, err := e.side.Output(ctx, "ip", "link", "set", "lo", "up"); err != nil {
			return nil, err
		}
	}
	if w.Emulated {
		return j, j.emulate(ctx, b, w)
	}
	if w.Routers[0].Name != "" {
		return j, j.route(ctx, b, w.Routers)
	}
	pid, err := far.side.pid(ctx)
	if err != nil {
		return nil, err
	}
	make := fmt.Sprintf("ip link add %s type veth peer name %s netns %d", server.dev, far.dev, pid)
	if _, err := server.side.Output(ctx, strings.Fields(make)...); err != nil {
		return nil, err
	}
	for _, e := range []end{server, far} {
		for _, args := range []string{"addr add " + e.addr, "link set up"} {
			if _, err := e.side.Output(ctx, append([]string{"ip"}, strings.Fields(args+" dev "+e.dev)...)...); err != nil {
				return nil, err
			}
		}
	}
	return j, j.lose(ctx, b, w)
}

func (j *Join) emulate(ctx context.Context, b *Box, w Wire) error {
	cfg := link.Config{AtoB: w.ToServer, BtoA: w.ToFar, Seed: w.Seed}
	for _, e := range []struct {
		of   end
		into *link.End
	}{{j.far, &cfg.A}, {j.server, &cfg.B}} {
		addr, err := netip.ParsePrefix(e.of.addr)
		if err != nil {
			return err
		}
		ns, err := b.netNSFile(ctx, e.of.side)
		if err != nil {
			return err
		}
		defer ns.Close()
		*e.into = link.End{NetNS: ns, Name: e.of.dev, Addrs: []netip.Prefix{addr}}
	}
	l, err := link.Open(cfg)
	if err != nil {
		return err
	}
	j.Link = l
	for d, p := range map[link.Direction]link.Pick{link.AtoB: w.PickToServer, link.BtoA: w.PickToFar} {
		if p.Every > 0 {
			l.Pick(d, &p)
		}
	}
	return nil
}

// lose attaches the droppers. For each packet to be one packet on the way,
// neither end may glue segments together.
func (j *Join) lose(ctx context.Context, b *Box, w Wire) error {
	if w.DropAtServer.None() && w.DropAtFar.None() {
		return nil
	}
	for _, e := range []struct {
		of   end
		rule drop.Rule
		into **drop.Dropper
	}{{j.server, w.DropAtServer, &j.AtServer}, {j.far, w.DropAtFar, &j.AtFar}} {
		ns, err := b.netNSFile(ctx, e.of.side)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := drop.NoOffload(ns, e.of.dev); err != nil {
			return err
		}
		if e.rule.None() {
			continue
		}
		if *e.into, err = drop.Attach(ns, e.of.dev, e.rule); err != nil {
			return err
		}
	}
	return nil
}

func (j *Join) close() error {
	if j == nil {
		return nil
	}
	var errs []error
	if j.Link != nil {
		errs = append(errs, j.Link.Close())
	}
	for _, d := range []*drop.Dropper{j.AtServer, j.AtFar} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}

// netNSFile opens the network namespace of a side, through the proc file
// system that init has mounted for its process namespace.
func (b *Box) netNSFile(ctx context.Context, s *Side) (*os.File, error) {
	pid, err := s.pid(ctx)
	if err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/%d/root/proc/%d/ns/net", b.PID(), pid))
}
