package socket

import (
	"net"
	"os"
	"testing"

	"github.com/slowray/slowray/internal/sense/host"
)

func open(t testing.TB) *Iterators {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF iterators")
	}
	it, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(it.Close)
	return it
}

// pair is a connected pair of sockets over loopback.
func pair(t testing.TB, network, addr string) (l net.Listener, a, b net.Conn) {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a, err = net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	b, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return l, a, b
}

// TestSameAsSockDiag: both ways of listing sockets must tell the same of the
// sockets this test made, inodes and owner included.
func TestSameAsSockDiag(t *testing.T) {
	it := open(t)
	ns, err := host.Default().OpenNetNS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, c := range []struct{ network, addr string }{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}} {
		l, a, _ := pair(t, c.network, c.addr)
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		collect := func(list func(*host.NetNS, func(*host.SocketSample)) error) map[host.SocketSample]bool {
			got := map[host.SocketSample]bool{}
			if err := list(ns, func(s *host.SocketSample) {
				if s.SrcPort == port || s.DstPort == port {
					got[*s] = true
				}
			}); err != nil {
				t.Fatal(err)
			}
			return got
		}
		iter := collect(it.TCP)
		diag := collect((*host.NetNS).Sockets)
		if len(iter) != 3 {
			t.Errorf("%s: %d sockets, want the listener and both ends: %v", c.network, len(iter), iter)
		}
		for s := range iter {
			if !diag[s] {
				t.Errorf("%s: sock_diag does not show %+v but %v", c.network, s, diag)
			}
		}
		owners, err := it.Owners(func(uint64) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		for s := range iter {
			if pids := owners[s.Inode]; len(pids) != 1 || pids[0] != os.Getpid() {
				t.Errorf("%s: socket %d belongs to %v, want %d", c.network, s.Inode, pids, os.Getpid())
			}
		}
		if local := uint16(a.LocalAddr().(*net.TCPAddr).Port); local == port {
			t.Fatal("the client uses the listener's port")
		}
	}
}

func BenchmarkOwners(b *testing.B) {
	it := open(b)
	for b.Loop() {
		if _, err := it.Owners(func(uint64) bool { return true }); err != nil {
			b.Fatal(err)
		}
	}
}
