package change

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
)

// connect makes connections of the child to itself, and gives the descriptors
// of both ends of each.
func (c *child) connect(listener string, port, n int) (near, far []string) {
	for range n {
		near = append(near, c.tell("dial %d", port))
		far = append(far, c.tell("accept %s", listener))
	}
	return near, far
}

func (c *child) opts(level, number int, fds ...string) string {
	var out []string
	for _, fd := range fds {
		out = append(out, c.tell("getopt %s %d %d", fd, level, number))
	}
	return strings.Join(out, " ")
}

func TestNoDelayServed(t *testing.T) {
	p := newChild(t)
	listener := p.tell("listen 8123 16")
	near, far := p.connect(listener, 8123, 3)
	get := func(fds ...string) string { return p.opts(unix.IPPROTO_TCP, unix.TCP_NODELAY, fds...) }
	c := p.change(cause.ChangeSocketOption)
	c.Name, c.Value, c.Side, c.Port = "TCP_NODELAY", "1", "served", 8123
	all := append(append([]string{listener}, near...), far...)
	dump := func() string { return get(all...) }
	was := cycle(t, c, dump, func() error {
		if got := dump(); got != "1 0 0 0 1 1 1" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})

	// Connections that come while the change is in force have it too; they lose
	// it with the others.
	d, _ := For(c.Kind)
	must(t, d.Apply(c, was))
	_, later := p.connect(listener, 8123, 2)
	if got := get(later...); got != "1 1" {
		t.Errorf("later connections have %s", got)
	}
	check(t, d, c, was, "with later connections", true, "")
	p.tell("close %s", far[0])
	must(t, d.Undo(c, was))
	if got := get(append(later, far[1:]...)...); got != "0 0 0 0" {
		t.Errorf("after undoing: %s", got)
	}

	must(t, d.Apply(c, was))
	p.tell("setopt %s %d %d 0", far[1], unix.IPPROTO_TCP, unix.TCP_NODELAY)
	check(t, d, c, was, "one set back by its program", true, "") // half of it is still there
	must(t, d.Undo(c, was))

	c.Name = "TCP_CONGESTION"
	refuses(t, c, "not a socket option")
	c.Name, c.Value = "TCP_NODELAY", "-1"
	refuses(t, c, "not a value")
	c.Value, c.Port = "1", 9
	refuses(t, c, "no such sockets")
	p.end()
	isGone(t, c, was)
}

func TestBuffersCalled(t *testing.T) {
	p := newChild(t)
	listener := p.tell("listen 8123 16")
	near, far := p.connect(listener, 8123, 2)
	c := p.change(cause.ChangeSocketOption)
	c.Name, c.Value, c.Side, c.Addr, c.Port = "SO_SNDBUF", "700000", "called", "127.0.0.1", 8123
	all := append(append([]string{listener}, near...), far...)
	dump := func() string {
		return p.opts(unix.SOL_SOCKET, unix.SO_SNDBUF, all...) + " " + p.opts(unix.SOL_SOCKET, unix.SO_BUF_LOCK, all...)
	}
	old := strings.Fields(dump())
	was := cycle(t, c, dump, func() error {
		want := strings.Join([]string{old[0], "1400000", "1400000", old[3], old[4], "0 1 1 0 0"}, " ")
		if got := dump(); got != want {
			return fmt.Errorf("%s, not %s", got, want)
		}
		return nil
	})
	d, _ := For(c.Kind)
	must(t, d.Apply(c, was))
	p.tell("setopt %s %d %d 9000", near[0], unix.SOL_SOCKET, unix.SO_SNDBUF)
	check(t, d, c, was, "one of two changed by another", true, "")
	must(t, d.Undo(c, was)) // leaves that one alone
	if got := p.opts(unix.SOL_SOCKET, unix.SO_SNDBUF, near...); got != "18000 "+old[2] {
		t.Errorf("after undoing: %s", got)
	}
	check(t, d, c, was, "undone but for one", false, "18000 on 1 socket, "+old[2]+" on 1 socket")
	p.tell("close %s", near[0])
	p.tell("close %s", near[1])
	isGone(t, c, was)
}

func TestDatagramBuffer(t *testing.T) {
	p := newChild(t)
	fd := p.tell("udp 5353")
	c := p.change(cause.ChangeSocketOption)
	c.Name, c.Value, c.Port = "SO_RCVBUF", "5000000", 5353
	dump := func() string {
		return p.opts(unix.SOL_SOCKET, unix.SO_RCVBUF, fd) + " " + p.opts(unix.SOL_SOCKET, unix.SO_BUF_LOCK, fd)
	}
	cycle(t, c, dump, func() error {
		if got := dump(); got != "10000000 2" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	c.Value = "7"
	refuses(t, c, "not a value")
}

// Where most connections have been closed meanwhile, undoing takes no longer.
func TestManyConnections(t *testing.T) {
	p := newChild(t)
	listener := p.tell("listen 8123 16")
	near, far := p.connect(listener, 8123, 400)
	c := p.change(cause.ChangeSocketOption)
	c.Name, c.Value, c.Side, c.Port = "TCP_NODELAY", "1", "served", 8123
	d, _ := For(c.Kind)
	start := time.Now()
	was, err := d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	applied := time.Since(start)
	for i := 1; i < len(near); i++ {
		p.tell("close %s", near[i])
		p.tell("close %s", far[i])
	}
	start = time.Now()
	must(t, d.Undo(c, was))
	t.Logf("applied in %v, undone in %v", applied, time.Since(start))
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("undone in %v", took)
	}
	if got := p.opts(unix.IPPROTO_TCP, unix.TCP_NODELAY, listener, far[0]); got != "0 0" {
		t.Errorf("after undoing: %s", got)
	}
}
