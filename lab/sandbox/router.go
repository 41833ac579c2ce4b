package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Router is a network namespace between the two ends of a wire in which no
// process lives: a mount keeps it. Its device towards the servers is lan0, the
// one towards the other side wan0.
type Router struct {
	Name string
	// Bound says that it has no name that ip-netns(8) knows: it is mounted in the
	// directory of the sandbox.
	Bound bool
}

// MaxRouters is how many there may be on a wire.
const MaxRouters = 3

// RouterUp is a router that is up.
type RouterUp struct {
	Path  string // as seen inside
	Inode uint64
}

// namedDir is where ip-netns(8) keeps its mounts, here of this sandbox alone.
const namedDir = "/run/netns"

// Run runs a line for the shell in the network namespace of the router.
func (r *RouterUp) Run(ctx context.Context, s *Side, line string) error {
	_, err := s.Output(ctx, "nsenter", "--net="+r.Path, "sh", "-c", line)
	return err
}

// route connects two sides by way of routers, the first of which is next to the
// server side.
func (j *Join) route(ctx context.Context, b *Box, routers [MaxRouters]Router) error {
	for _, r := range routers {
		if r.Name == "" {
			break
		}
		up, err := b.router(ctx, r)
		if err != nil {
			return err
		}
		j.Routers = append(j.Routers, up)
	}
	farPID, err := j.far.side.pid(ctx)
	if err != nil {
		return err
	}
	last := len(j.Routers)
	server, _, _ := strings.Cut(j.server.addr, "/")
	far, _, _ := strings.Cut(j.far.addr, "/")
	// Link n is between router n-1 and router n; the ends are the two sides.
	for n := range last + 1 {
		here, there := "wan0", "lan0" // the device at either end
		left, right := transfer(n, 1), transfer(n, 2)
		if n == 0 {
			here, left = j.server.dev, server
		}
		target := strconv.Itoa(farPID)
		if n == last {
			there, right = j.far.dev, far
		} else {
			target = j.Routers[n].Path
		}
		make := fmt.Sprintf("ip link add %s type veth peer name %s netns %s", here, there, target)
		if err := j.at(ctx, n-1, make); err != nil {
			return err
		}
		for _, e := range []struct {
			node               int
			dev, own, next, to string
		}{{n - 1, here, left, right, far}, {n, there, right, left, server}} {
			lines := fmt.Sprintf("ip addr add %[2]s/32 dev %[1]s && ip link set %[1]s up && ip route add %[3]s/32 dev %[1]s", e.dev, e.own, e.next)
			if e.next != e.to {
				lines += fmt.Sprintf(" && ip route add %s/32 via %s dev %s", e.to, e.next, e.dev)
			}
			if err := j.at(ctx, e.node, lines); err != nil {
				return err
			}
		}
	}
	return nil
}

// at runs a line in a router, or in the side before the first or behind the last.
func (j *Join) at(ctx context.Context, n int, line string) error {
	switch {
	case n < 0:
		_, err := j.server.side.Output(ctx, "sh", "-c", line)
		return err
	case n == len(j.Routers):
		_, err := j.far.side.Output(ctx, "sh", "-c", line)
		return err
	}
	return j.Routers[n].Run(ctx, j.server.side, line)
}

// transfer is an address of a link between routers (RFC 6598).
func transfer(link, end int) string { return fmt.Sprintf("100.64.%d.%d", link, end) }

// router makes the namespace of a router.
func (b *Box) router(ctx context.Context, r Router) (*RouterUp, error) {
	up := &RouterUp{Path: filepath.Join(namedDir, r.Name)}
	make := fmt.Sprintf("mkdir -p %[1]s && { [ -e %[1]s/.lab ] || mount -t tmpfs lab %[1]s && touch %[1]s/.lab; } && ip netns add %[2]s", namedDir, r.Name)
	if r.Bound {
		up.Path = filepath.Join(b.Dir, r.Name)
		make = fmt.Sprintf("touch %[1]s && unshare --net=%[1]s true", up.Path)
	}
	if _, err := b.Server.Output(ctx, "sh", "-c", make); err != nil {
		return nil, err
	}
	inode, err := b.Server.Output(ctx, "stat", "--dereference", "--format=%i", up.Path)
	if err != nil {
		return nil, err
	}
	if up.Inode, err = strconv.ParseUint(inode, 10, 64); err != nil {
		return nil, err
	}
	return up, up.Run(ctx, b.Server, "ip link set lo up && sysctl -qw net.ipv4.ip_forward=1")
}
