package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/shell"
	"golang.org/x/sys/unix"
)

// settings is the Doer of cause.ChangeSetting.
type settings struct{}

// held is the State's data of a setting.
type held struct {
	Server string `json:"server"`
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"` // ticks since the boot
	Old    string `json:"old"`
}

// asker talks to one running server.
type asker interface {
	get(ctx context.Context, name string) (string, error)
	set(ctx context.Context, name, value string) error
	close()
}

// product is what differs between servers that let themselves be set.
type product struct {
	name     string // for people
	comms    []string
	ask      func(ctx context.Context, a *access) (asker, error)
	settings *regexp.Regexp // how their names look
	never    []string       // settings by which slowray, or others, would lose the server
	same     func(a, b string) bool
	// command is what a person would type; at is where the server listens.
	command func(a *access, name, value string) shell.Command
}

var products = map[string]*product{"redis": &redisProduct, "mariadb": &mariadbProduct, "gunicorn": &gunicornProduct}

// productOf takes other names of the same.
func productOf(server string) (*product, error) {
	switch server {
	case "valkey":
		server = "redis"
	case "mysql":
		server = "mariadb"
	case "postgres", "postgresql":
		return nil, errors.New("a setting of PostgreSQL is not changed: ALTER SYSTEM leaves its file otherwise than it was")
	}
	if p, ok := products[server]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("%s takes no settings while it runs", server)
}

// askTime is how long a server may take to answer.
const askTime = 5 * time.Second

// executes is the server that a process runs, whatever it is called.
func executes(pid int) string {
	var programs host.Programs
	return programs.Of(budget.New(context.Background(), budget.Limits{Bytes: 64 << 20, Unpacked: 64 << 20, Nodes: 1 << 20, Files: 4, Wall: time.Second}), host.FS{Proc: "/proc"}, pid)
}

// with connects to the server of a change and has f talk to it.
func with(c *cause.Change, f func(context.Context, *product, *access, asker) error) error {
	p, err := productOf(c.Server)
	if err != nil {
		return err
	}
	comm, _, err := statFields(c.PID)
	if err != nil {
		return fmt.Errorf("%s (pid %d) does not run (any more)", c.Server, c.PID)
	}
	if !slices.Contains(p.comms, comm) && !slices.Contains(p.comms, executes(c.PID)) {
		return fmt.Errorf("pid %d is %s, not %s", c.PID, comm, p.name)
	}
	if !p.settings.MatchString(c.Name) {
		return fmt.Errorf("%q is no name of a setting of %s", c.Name, p.name)
	}
	a, err := accessTo(c)
	if err != nil {
		return err
	}
	defer a.close()
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	talk, err := p.ask(ctx, a)
	if err != nil {
		return fmt.Errorf("%s (pid %d): %w", p.name, c.PID, err)
	}
	defer talk.close()
	if err := f(ctx, p, a, talk); err != nil {
		return fmt.Errorf("%s (pid %d): %w", p.name, c.PID, err)
	}
	return nil
}

// Prepare implements change.Doer.
func (settings) Prepare(c *cause.Change) (change.State, error) {
	var old string
	err := with(c, func(ctx context.Context, p *product, _ *access, talk asker) (err error) {
		if slices.Contains(p.never, c.Name) {
			return fmt.Errorf("%s is not changed while it runs: it could be lost by that", c.Name)
		}
		if strings.ContainsAny(c.Value, "\x00\r\n") {
			return fmt.Errorf("%s: not a value: %q", c.Name, c.Value)
		}
		if old, err = talk.get(ctx, c.Name); err != nil {
			return err
		}
		if p.same(old, c.Value) {
			return fmt.Errorf("%s is %s already", c.Name, old)
		}
		return nil
	})
	if err != nil {
		return change.State{}, err
	}
	start, err := startTicks(c.PID)
	if err != nil {
		return change.State{}, fmt.Errorf("%s (pid %d) does not run (any more)", c.Server, c.PID)
	}
	raw, err := json.Marshal(held{c.Server, c.PID, start, old})
	return change.State{Was: old, Data: raw}, err
}

// holder reads a State; gone: its process has ended, and the setting with it.
func holder(was change.State) (h held, gone bool, err error) {
	if err := json.Unmarshal(was.Data, &h); err != nil {
		return h, false, fmt.Errorf("config: the kept state cannot be read: %w", err)
	}
	t, err := startTicks(h.PID)
	return h, err != nil || t != h.Start, nil
}

// Apply implements change.Doer.
func (settings) Apply(c *cause.Change, was change.State) error {
	h, gone, err := holder(was)
	if err != nil || gone {
		return errors.Join(err, fmt.Errorf("%s (pid %d) has ended", h.Server, h.PID))
	}
	return with(c, func(ctx context.Context, p *product, _ *access, talk asker) error {
		switch now, err := talk.get(ctx, c.Name); {
		case err != nil:
			return err
		case now != h.Old:
			return fmt.Errorf("%s was set to %s by somebody else since it was looked at: nothing was done", c.Name, now)
		}
		if err := talk.set(ctx, c.Name, c.Value); err != nil {
			return err
		}
		now, err := talk.get(ctx, c.Name)
		if err == nil && p.same(now, c.Value) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s was cut to %s by the server", c.Name, now)
		}
		return errors.Join(err, talk.set(ctx, c.Name, h.Old))
	})
}

// Holds implements change.Doer.
func (settings) Holds(c *cause.Change, was change.State) (holds, gone bool, now string, err error) {
	h, gone, err := holder(was)
	if err != nil || gone {
		return false, gone, fmt.Sprintf("%s (pid %d) has ended", h.Server, h.PID), err
	}
	err = with(c, func(ctx context.Context, p *product, _ *access, talk asker) (err error) {
		if now, err = talk.get(ctx, c.Name); err == nil {
			holds = p.same(now, c.Value)
		}
		return err
	})
	return holds, false, now, err
}

// Undo implements change.Doer.
func (settings) Undo(c *cause.Change, was change.State) error {
	h, gone, err := holder(was)
	if err != nil || gone {
		return err
	}
	return with(c, func(ctx context.Context, p *product, _ *access, talk asker) error {
		now, err := talk.get(ctx, c.Name)
		switch {
		case err != nil:
			return err
		case now == h.Old:
			return nil
		case !p.same(now, c.Value):
			return fmt.Errorf("%s was set to %s by somebody else since: it is left so; it was %s", c.Name, now, h.Old)
		}
		return talk.set(ctx, c.Name, h.Old)
	})
}

// Commands implements change.Doer.
func (settings) Commands(c *cause.Change, was change.State) (do, undo []shell.Command) {
	h, _, err := holder(was)
	p, perr := productOf(c.Server)
	a, aerr := accessTo(c)
	if errors.Join(err, perr, aerr) != nil {
		return nil, nil
	}
	defer a.close()
	return []shell.Command{p.command(a, c.Name, c.Value)}, []shell.Command{p.command(a, c.Name, h.Old)}
}

// access is how a server is reached from where it lives.
type access struct {
	pid    int
	space  *host.NetNS
	inside bool // its network namespace is another than slowray's
	tcp    []netip.AddrPort
	unix   []string // in its root; an abstract name begins with "@"
}

func (a *access) close() { _ = a.space.Close() }

// accessTo finds where the process of a change listens; the change's own port
// comes first.
func accessTo(c *cause.Change) (*access, error) {
	fs := host.Default()
	space, err := fs.OpenNetNS(c.PID)
	if err != nil {
		return nil, err
	}
	a := &access{pid: c.PID, space: space, inside: !sameFile(fmt.Sprintf("/proc/%d/ns/net", c.PID), "/proc/thread-self/ns/net")}
	owners, _ := fs.SocketOwners([]int{c.PID})
	list, err := space.Listeners()
	if err != nil && len(list) == 0 {
		a.close()
		return nil, err
	}
	for _, l := range list {
		switch {
		case owners[l.Inode] == nil:
		case l.Proto == "unix" && l.Path != "":
			if !path.IsAbs(l.Path) && l.Path[0] != '@' {
				l.Path = path.Join(prefork.Cwd("/proc", c.PID), l.Path)
			}
			a.unix = append(a.unix, l.Path)
		case l.Proto != "unix":
			at := netip.AddrPortFrom(l.Addr, l.Port)
			if l.Addr.IsUnspecified() {
				at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), l.Port)
				if l.Addr.Is6() {
					at = netip.AddrPortFrom(netip.IPv6Loopback(), l.Port)
				}
			}
			a.tcp = append(a.tcp, at)
		}
	}
	slices.SortStableFunc(a.tcp, func(x, y netip.AddrPort) int {
		return distance(int(x.Port()), c.Port) - distance(int(y.Port()), c.Port)
	})
	slices.Sort(a.unix)
	return a, nil
}

// dialUnix connects to a unix socket of the process: of this one, for slowray is let
// in as root, and what has the socket's name may by now lead to another server. Names
// longer than a socket's may be, as those through /proc are, are reached by a
// descriptor.
func (a *access) dialUnix(ctx context.Context, name string) (conn net.Conn, err error) {
	if strings.HasPrefix(name, "@") {
		err = a.space.Do(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "unix", name)
			return err
		})
	} else {
		conn, err = a.dialPath(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	if pid, err := listener(conn.(*net.UnixConn)); err != nil || pid != a.pid {
		return nil, errors.Join(fmt.Errorf("%s leads to process %d, not to process %d", name, pid, a.pid), err, conn.Close())
	}
	return conn, nil
}

func (a *access) dialPath(ctx context.Context, name string) (net.Conn, error) {
	tree, err := safefile.OpenTree(rootOf(a.pid))
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	at, err := tree.Reach(name)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", at.Fd()))
}

// listener is the process that listens on the other end (SO_PEERCRED, unix(7)).
func listener(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

func (a *access) dialTCP(ctx context.Context, at netip.AddrPort) (conn net.Conn, err error) {
	err = a.space.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
		return err
	})
	return conn, err
}

// prefix is how a person gets to where the server listens.
func (a *access) prefix() shell.Command {
	if !a.inside {
		return shell.Command{}
	}
	return shell.Line("nsenter -t %s -n", a.pid)
}
