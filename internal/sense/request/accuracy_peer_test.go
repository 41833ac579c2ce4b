package request_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/netns"
)

// patience ends a script that hangs.
const patience = 20 * time.Second

// peer is one end of a connection in a script: plain blocking system calls,
// so that it is known when what was called. After an error it does nothing
// more; the error is in err.
type peer struct {
	fd    int
	local netip.AddrPort
	buf   []byte
	err   error
}

// newPeer takes a connected socket over.
func newPeer(fd int) *peer {
	p := &peer{fd: fd, buf: make([]byte, 64<<10)}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	for _, name := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, name, &limit); err != nil {
			p.err = err
		}
	}
	if name, err := unix.Getsockname(fd); err == nil {
		p.local = addrOf(name)
	}
	return p
}

func (p *peer) fail(what string, err error) {
	if p.err == nil && err != nil {
		p.err = fmt.Errorf("%s %s: %w", p.local, what, err)
	}
}

// send writes n bytes in as few calls as it can.
func (p *peer) send(n int) {
	for n > 0 && p.err == nil {
		written, err := unix.Write(p.fd, p.buf[:min(n, len(p.buf))])
		if err == unix.EINTR {
			continue
		}
		p.fail("write", err)
		n -= written
	}
}

// receive reads exactly n bytes.
func (p *peer) receive(n int) {
	for n > 0 && p.err == nil {
		got, err := unix.Read(p.fd, p.buf[:min(n, len(p.buf))])
		if err == unix.EINTR {
			continue
		}
		if got == 0 && err == nil {
			err = io.ErrUnexpectedEOF
		}
		p.fail("read", err)
		n -= got
	}
}

// receiveEnd reads until the other end has closed or reset.
func (p *peer) receiveEnd() {
	for p.err == nil {
		got, err := unix.Read(p.fd, p.buf)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ECONNRESET || got == 0 && err == nil {
			return
		}
		p.fail("read", err)
	}
}

// shut closes the sending side only.
func (p *peer) shut() {
	if p.err == nil {
		p.fail("shutdown", unix.Shutdown(p.fd, unix.SHUT_WR))
	}
}

// close closes the socket; unread bytes make that a reset.
func (p *peer) close() error {
	if p.fd >= 0 {
		p.fail("close", unix.Close(p.fd))
		p.fd = -1
	}
	return p.err
}

// reset closes with an RST.
func (p *peer) reset() error {
	if p.err == nil {
		p.fail("linger", unix.SetsockoptLinger(p.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	}
	return p.close()
}

func (p *peer) option(level, name, value int) {
	if p.err == nil {
		p.fail("setsockopt", unix.SetsockoptInt(p.fd, level, name, value))
	}
}

// quickAck has the next segment acknowledged at once.
func (p *peer) quickAck() { p.option(unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) }

// noDelay turns Nagle's algorithm off.
func (p *peer) noDelay() { p.option(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// ask is the client's part of n exchanges, with a pause after each. Responses
// are acknowledged at once.
func (p *peer) ask(n, in, out int, pause time.Duration) {
	for range n {
		p.send(in)
		p.quickAck()
		p.receive(out)
		time.Sleep(pause)
	}
}

// answer is the server's part of n exchanges: after each request it works.
func (p *peer) answer(n, in, out int, work func()) {
	for range n {
		p.receive(in)
		if work != nil {
			work()
		}
		p.send(out)
	}
}

// socket makes a TCP socket in the namespace of the calling thread.
func socket(addr netip.Addr) (int, error) {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrOf(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}

// listener is a listening socket.
type listener struct {
	fd   int
	addr netip.AddrPort
}

// listen opens a listening socket in a place, on a port that is free there.
func (tr *trial) listen(p *place, addr netip.Addr) *listener {
	tr.t.Helper()
	l := &listener{fd: -1}
	tr.must(netns.Do(p.ns, func() (err error) {
		if l.fd, err = socket(addr); err != nil {
			return err
		}
		if err := unix.Bind(l.fd, sockaddr(netip.AddrPortFrom(addr, 0))); err != nil {
			return fmt.Errorf("bind %s: %w", addr, err)
		}
		return unix.Listen(l.fd, 1024)
	}))
	tr.cleanup(func() { unix.Close(l.fd) })
	name, err := unix.Getsockname(l.fd)
	tr.must(err)
	l.addr = addrOf(name)
	// A script whose client failed ends as well.
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	tr.must(unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
	return l
}

func (l *listener) accept() (*peer, error) {
	for {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("accept: %w", err)
		}
		return newPeer(fd), nil
	}
}

// dial connects from the namespace of the calling thread.
func dial(to netip.AddrPort) (*peer, error) {
	fd, err := socket(to.Addr())
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s: %w", to, err), unix.Close(fd))
	}
	return newPeer(fd), nil
}

// dial connects from a place.
func (tr *trial) dial(from *place, to netip.AddrPort) *peer {
	tr.t.Helper()
	var p *peer
	tr.must(netns.Do(from.ns, func() (err error) {
		p, err = dial(to)
		return err
	}))
	tr.cleanup(func() { p.close() })
	return p
}

// connect opens one connection to a listener.
func (tr *trial) connect(from *place, l *listener, to netip.AddrPort) (client, server *peer) {
	tr.t.Helper()
	client = tr.dial(from, to)
	server, err := l.accept()
	tr.must(err)
	tr.cleanup(func() { server.close() })
	return client, server
}

// veth joins two places; the addresses are those of a's and b's end.
func (tr *trial) veth(a, b *place) (atA, atB netip.Addr) {
	tr.t.Helper()
	run := func(p *place, args ...string) {
		tr.t.Helper()
		tr.must(netns.Do(p.ns, func() error {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %v: %w: %s", args, err, out)
			}
			return nil
		}))
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", unix.Getpid(), b.ns.Fd())
	run(a, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", path)
	for i, p := range []*place{a, b} {
		run(p, "addr", "add", fmt.Sprintf("10.91.0.%d/24", i+1), "dev", "veth0")
		run(p, "link", "set", "veth0", "up")
	}
	return netip.MustParseAddr("10.91.0.1"), netip.MustParseAddr("10.91.0.2")
}

// listenNet is listen for a server that uses the net package.
func (tr *trial) listenNet(p *place) net.Listener {
	tr.t.Helper()
	var l net.Listener
	tr.must(netns.Do(p.ns, func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	}))
	tr.cleanup(func() { l.Close() })
	return l
}

// dialNet is dial for a client that uses the net package.
func (tr *trial) dialNet(p *place, to net.Addr) net.Conn {
	tr.t.Helper()
	var c net.Conn
	tr.must(netns.Do(p.ns, func() (err error) {
		c, err = net.DialTCP("tcp4", nil, to.(*net.TCPAddr))
		return err
	}))
	tr.cleanup(func() { c.Close() })
	return c
}
