package host

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// listen makes a TCP listener on the loopback of n, and returns its port.
func listen(t testing.TB, n *NetNS, family, backlog int) int {
	t.Helper()
	var port int
	err := n.Do(func() error {
		s, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(s) })
		var addr unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		if family == unix.AF_INET6 {
			addr = &unix.SockaddrInet6{}
		}
		if err := unix.Bind(s, addr); err != nil {
			return err
		}
		if err := unix.Listen(s, backlog); err != nil {
			return err
		}
		name, err := unix.Getsockname(s)
		switch a := name.(type) {
		case *unix.SockaddrInet4:
			port = a.Port
		case *unix.SockaddrInet6:
			port = a.Port
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// connect starts count connections to a port of n's loopback and returns their
// descriptors, which are closed when the test ends.
func connect(t testing.TB, n *NetNS, port, count int) []int {
	t.Helper()
	var fds []int
	err := n.Do(func() error {
		for range count {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			fds = append(fds, s)
			err = unix.Connect(s, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
			if err != nil && err != unix.EINPROGRESS {
				return err
			}
		}
		return nil
	})
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return fds
}

func TestListenerQueueAndDrops(t *testing.T) {
	n := privateNetNS(t)
	port := listen(t, n, unix.AF_INET, 5)
	find := func() ListenerSample {
		ls, err := n.Listeners()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			if int(l.Port) == port {
				return l
			}
		}
		t.Fatalf("no listener on port %d: %+v", port, ls)
		return ListenerSample{}
	}
	got := find()
	want := ListenerSample{Proto: "tcp", Addr: netip.MustParseAddr("127.0.0.1"), Port: uint16(port), Inode: got.Inode, Limit: 5}
	if d := cmp.Diff(want, got, addrs); d != "" || got.Inode == 0 {
		t.Error(d)
	}
	connect(t, n, port, 7)
	got = find()
	if got.Queue != 6 || got.Limit != 5 || got.Drops == 0 {
		t.Errorf("seven connections, backlog 5: %+v; want queue 6 and drops", got)
	}
	owners, _ := Default().SocketOwners([]int{os.Getpid()})
	if !cmp.Equal(owners[got.Inode], []int{os.Getpid()}) {
		t.Errorf("listener %d is owned by %v", got.Inode, owners[got.Inode])
	}
}

var addrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestListenersTCP6AndUnix(t *testing.T) {
	n := privateNetNS(t)
	port := listen(t, n, unix.AF_INET6, 9)
	path := t.TempDir() + "/fpm.sock"
	var clients []int
	err := n.Do(func() error {
		for _, u := range []struct {
			name string
			kind int
		}{{path, unix.SOCK_STREAM}, {"@abstract", unix.SOCK_SEQPACKET}} {
			s, err := unix.Socket(unix.AF_UNIX, u.kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			clients = append(clients, s)
			if err := unix.Bind(s, &unix.SockaddrUnix{Name: u.name}); err != nil {
				return err
			}
			if err := unix.Listen(s, 3); err != nil {
				return err
			}
		}
		for range 2 {
			c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			clients = append(clients, c)
			if err := unix.Connect(c, &unix.SockaddrUnix{Name: path}); err != nil {
				return err
			}
		}
		return nil
	})
	defer func() {
		for _, fd := range clients {
			unix.Close(fd)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	got, err := n.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]ListenerSample)
	for _, l := range got {
		if l.Inode == 0 {
			t.Errorf("no inode: %+v", l)
		}
		l.Inode = 0
		byName[l.Proto+l.Path] = l
	}
	want := map[string]ListenerSample{
		"tcp6":          {Proto: "tcp6", Addr: netip.IPv6Unspecified(), Port: uint16(port), Limit: 9},
		"unix" + path:   {Proto: "unix", Path: path, Queue: 2, Limit: 3},
		"unix@abstract": {Proto: "unix", Path: "@abstract", Limit: 3},
	}
	if d := cmp.Diff(want, byName, addrs); d != "" {
		t.Error(d)
	}
}

func TestSocketStates(t *testing.T) {
	n := privateNetNS(t)
	port := listen(t, n, unix.AF_INET6, 100) // dual stack: its children are mapped addresses
	fds := connect(t, n, port, 5)
	time.Sleep(20 * time.Millisecond)
	for _, fd := range fds[3:] {
		unix.Close(fd) // the client's end goes to FIN_WAIT2, the unaccepted one to CLOSE_WAIT
	}
	// TCP_DEFER_ACCEPT keeps a connection without data in SYN_RECV.
	deferred := listen(t, n, unix.AF_INET, 100)
	err := n.Do(func() error {
		return forListener(deferred, func(s int) error {
			return unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 10)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, n, deferred, 2)
	time.Sleep(20 * time.Millisecond)
	got := map[string]int{}
	loopback := netip.MustParseAddr("127.0.0.1")
	err = n.Sockets(func(s *SocketSample) {
		got[s.State]++
		if s.State == "ESTABLISHED" && (s.Src != loopback || s.Dst != loopback || s.SrcPort == 0 || s.DstPort == 0) {
			t.Errorf("%+v", *s)
		}
		if int(s.SrcPort) == port && s.Family != unix.AF_INET6 {
			t.Errorf("family %d: %+v", s.Family, *s)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"LISTEN": 2, "ESTABLISHED": 3*2 + 2, "SYN_RECV": 2, "FIN_WAIT2": 2, "CLOSE_WAIT": 2}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// forListener runs fn with the descriptor of our listener on a port.
func forListener(port int, fn func(fd int) error) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, ok := ParseSmall([]byte(e.Name()))
		if !ok {
			continue
		}
		name, err := unix.Getsockname(fd)
		if a, ok := name.(*unix.SockaddrInet4); err == nil && ok && a.Port == port {
			if on, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); on == 1 {
				return fn(fd)
			}
		}
	}
	return unix.ENOENT
}

func TestTimeWait(t *testing.T) {
	n := privateNetNS(t)
	churn(t, n, 50)
	got := map[string]int{}
	if err := n.Sockets(func(s *SocketSample) { got[s.State]++ }); err != nil {
		t.Fatal(err)
	}
	if got["TIME_WAIT"] != 50 {
		t.Errorf("%v; want 50 in TIME_WAIT", got)
	}
}

// churn opens and closes count connections, the client first, so that each
// leaves a socket in TIME_WAIT.
func churn(t testing.TB, n *NetNS, count int) {
	t.Helper()
	port := listen(t, n, unix.AF_INET, 100)
	err := n.Do(func() error {
		return forListener(port, func(l int) error {
			for range count {
				c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				if err := unix.Connect(c, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
					return err
				}
				s, _, err := unix.Accept(l)
				if err != nil {
					return err
				}
				unix.Close(c)
				unix.Close(s)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestParseSocketMessages(t *testing.T) {
	b := make([]byte, inetDiagMsgSize)
	b[0], b[1] = unix.AF_INET6, 1
	copy(b[diagMsgSrc:], netip.MustParseAddr("::ffff:10.0.0.1").AsSlice())
	copy(b[diagMsgDst:], netip.MustParseAddr("2001:db8::2").AsSlice())
	binary.BigEndian.PutUint16(b[diagMsgSrcPort:], 80)
	binary.BigEndian.PutUint16(b[diagMsgDstPort:], 50000)
	binary.NativeEndian.PutUint32(b[diagMsgInode:], 4294967295)
	var got SocketSample
	if !parseSocket(b, &got) {
		t.Fatal("not taken")
	}
	want := SocketSample{State: "ESTABLISHED", Family: unix.AF_INET6, Src: netip.MustParseAddr("10.0.0.1"),
		Dst: netip.MustParseAddr("2001:db8::2"), SrcPort: 80, DstPort: 50000, Inode: 4294967295}
	if d := cmp.Diff(want, got, addrs); d != "" {
		t.Error(d)
	}
	b[1] = 200
	if !parseSocket(b, &got) || got.State != "UNKNOWN" {
		t.Error("a state of a later kernel:", got.State)
	}
	for _, bad := range [][]byte{nil, b[:71], make([]byte, 72)} {
		if parseSocket(bad, &got) {
			t.Error("taken:", bad)
		}
	}
}

func TestUnixName(t *testing.T) {
	for in, want := range map[string]string{"/run/x.sock\x00": "/run/x.sock", "\x00abs\x00x": "@abs@x", "": "", strings.Repeat("a", 300): strings.Repeat("a", 108)} {
		if got := unixName([]byte(in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
