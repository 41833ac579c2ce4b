package connect

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/netns"
)

func start(t *testing.T) *Watcher {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	w, err := Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := w.WatchCalls(); err != nil {
		t.Fatal(err)
	}
	return w
}

// own returns what this process did towards an end.
func own(t *testing.T, r Result, match func(*observe.Connect) bool) observe.Connect {
	t.Helper()
	for i := range r.Connects {
		if c := &r.Connects[i]; c.PID == os.Getpid() && match(c) {
			return *c
		}
	}
	t.Fatalf("no such connect in %+v", r.Connects)
	return observe.Connect{}
}

// callTimes makes n connections to l, one after the other, and closes them.
func callTimes(t *testing.T, l net.Listener, n int) {
	t.Helper()
	for range n {
		a, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		b.Close()
	}
}

// TestKnownCalls makes known numbers of calls and expects exactly those.
func TestKnownCalls(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		w := start(t)
		l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		const good = 25
		callTimes(t, l, good)
		r, err := w.Read(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := own(t, r, func(c *observe.Connect) bool { return c.Port == port })
		if c.Addr != addr || c.Calls != good || c.Started != good || c.Established != good || c.Failed != 0 || len(c.Errors) != 0 {
			t.Errorf("%s: %+v", addr, c)
		}
		var st syscall.Stat_t
		if err := syscall.Stat("/proc/self/ns/net", &st); err != nil || c.NetNS != st.Ino {
			t.Errorf("namespace %d, want %d (%v)", c.NetNS, st.Ino, err)
		}
		if n := r.Opened[PassiveKey{st.Ino, port}]; n != good {
			t.Errorf("%s: %d handshakes completed at the listener, want %d", addr, n, good)
		}
		for _, a := range r.Accepts {
			if a.PID == os.Getpid() && (a.Accepted != good || len(a.Errors) != 0) {
				t.Errorf("%s: %+v", addr, a)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	w := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr)
	l.Close()
	for range 3 {
		if _, err := net.DialTCP("tcp", nil, closed); err == nil {
			t.Fatal("connected to a closed port")
		}
	}
	r, err := w.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := own(t, r, func(c *observe.Connect) bool { return c.Port == closed.Port })
	if c.Calls != 3 || c.Established != 0 || c.Failed != 3 {
		t.Errorf("%+v", c)
	}
}

// TestUnixBacklogFull: a non-blocking connect() to a unix socket whose queue is
// full is refused with EAGAIN.
func TestUnixBacklogFull(t *testing.T) {
	w := start(t)
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	refused := uint64(0)
	for range 6 {
		c, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(c)
		if syscall.Connect(c, &syscall.SockaddrUnix{Name: path}) == syscall.EAGAIN {
			refused++
		}
	}
	r, err := w.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := own(t, r, func(c *observe.Connect) bool { return c.Path == path })
	if refused == 0 || c.Calls != 6 || c.Errors["EAGAIN"] != refused || c.Started != 6-refused {
		t.Errorf("%d refused, %+v", refused, c)
	}
}

func TestEMFILE(t *testing.T) {
	w := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 3 // no descriptor below it is free
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, _, acceptErr := syscall.Accept4(int(raw.Fd()), 0)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if acceptErr != syscall.EMFILE {
		t.Fatalf("accept: %v, want EMFILE", acceptErr)
	}
	r, err := w.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Accepts {
		if a.PID == os.Getpid() {
			if a.Errors["EMFILE"] != 1 {
				t.Errorf("%+v", a)
			}
			return
		}
	}
	t.Error("the failed accept() was not seen")
}

func TestUnixPath(t *testing.T) {
	for in, want := range map[string]string{
		"/run/x\x00junk": "/run/x", "\x00abstract\x00\x00": "@abstract", "": "", "\x00": "@", "full": "full",
	} {
		if got := unixPath([]byte(in)); got != want {
			t.Errorf("unixPath(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestNoPort: a connect() that finds no free local port fails at once, and is
// told apart from one that is refused and from one that is given up.
func TestNoPort(t *testing.T) {
	w := start(t)
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var port int
	var failed uint64
	err = netns.Do(ns, func() error {
		// /proc/sys/net is that of the thread's namespace; two ports are enough.
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40001"), 0); err != nil {
			return err
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		port = l.Addr().(*net.TCPAddr).Port
		for range 5 {
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer syscall.Close(fd)
			switch err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err {
			case nil:
			case syscall.EADDRNOTAVAIL:
				failed++
			default:
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := own(t, r, func(c *observe.Connect) bool { return c.Port == port })
	if failed < 3 || c.Calls != 5 || c.Errors["EADDRNOTAVAIL"] != failed || c.Started != 5-failed || c.Established != 5-failed || c.Failed != 0 {
		t.Errorf("%d calls found no port; %+v", failed, c)
	}
}

// TestRest: calls are not counted, nor is their time, while they are not
// watched.
func TestRest(t *testing.T) {
	w := start(t)
	path := filepath.Join(t.TempDir(), "none")
	call := func() { _ = connectUnix(t, path) }
	call()
	w.RestCalls()
	first, err := w.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	call()
	time.Sleep(20 * time.Millisecond)
	rested, err := w.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.Watched == 0 || rested.Watched != first.Watched {
		t.Errorf("watched for %v, then %v", first.Watched, rested.Watched)
	}
	if err := w.WatchCalls(); err != nil {
		t.Fatal(err)
	}
	call()
	last, err := w.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := own(t, last, func(c *observe.Connect) bool { return c.Path == path })
	if c.Calls != 2 || c.Errors["other"] != 2 || last.Watched <= rested.Watched {
		t.Errorf("watched for %v: %+v", last.Watched, c)
	}
}

func connectUnix(t *testing.T, path string) error {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	return syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
}

// TestUnnamedHandshakes: where the recorder had no place for an address, calls that did
// not fail are taken to have succeeded; who counts by itself knows better.
func TestUnnamedHandshakes(t *testing.T) {
	w := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const good, refused = 30, 7
	for i := range good + refused {
		if i == good {
			l.Close()
		}
		if c, err := net.Dial("tcp", l.Addr().String()); (err == nil) != (i < good) {
			t.Fatal(i, err)
		} else if err == nil {
			c.Close()
		}
	}
	for _, called := range []bool{false, true} {
		if w.called = called; called { // as if what succeeded had not been counted here
			var key handshakeKey
			var value handshake
			for it := w.objects.Handshakes.Iterate(); it.Next(&key, &value); {
				value.Established = 0
				if err := w.objects.Handshakes.Put(&key, &value); err != nil {
					t.Fatal(err)
				}
			}
		}
		r, err := w.Read(&Handshakes{Unnamed: good})
		if err != nil {
			t.Fatal(err)
		}
		c := own(t, r, func(c *observe.Connect) bool { return c.Port == l.Addr().(*net.TCPAddr).Port })
		if c.Started != good+refused || c.Established != good || c.Refused != refused {
			t.Errorf("called %t: %+v", called, c)
		}
	}
}

// TestCalledFromSlot: with the counts of a recorder, which calls the program, the result is
// that of a Watcher of its own.
func TestCalledFromSlot(t *testing.T) {
	alone := start(t)
	stream, err := request.StartStream(request.Options{})
	if err != nil {
		t.Skip("SKIP: ", err)
	}
	defer stream.Close()
	slot := stream.OnConnect()
	if slot == nil {
		t.Skip("SKIP: this kernel lets programs with functions call no others")
	}
	sub := stream.Subscribe(func(*observe.Request) {})
	called, err := Start(slot)
	if err != nil {
		t.Fatal(err)
	}
	defer called.Close()
	if _, err := slot.Put(called.objects.SetState); !errors.Is(err, bpf.ErrSlotTaken) {
		t.Errorf("a second program: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	const good, refused = 30, 7
	callTimes(t, l, good)
	for range refused {
		if _, err := net.Dial("tcp", closed.Addr().String()); err == nil {
			t.Fatal("connected to a closed port")
		}
	}
	if err := sub.End(); err != nil {
		t.Fatal(err)
	}
	completed := &Handshakes{}
	for _, c := range sub.Opened() {
		completed.Add(c.Side == observe.Served, c.NetNS, c.Addr, int(c.Port), c.Connections)
	}
	want, err := alone.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := called.Read(completed)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []net.Addr{l.Addr(), closed.Addr()} {
		port := at.(*net.TCPAddr).Port
		here := func(c *observe.Connect) bool { return c.Port == port }
		x, y := own(t, want, here), own(t, got, here)
		if !reflect.DeepEqual(x, y) || x.Calls == 0 {
			t.Errorf("port %d: alone %+v, called %+v", port, x, y)
		}
	}
	if key := (PassiveKey{own(t, got, func(c *observe.Connect) bool { return c.Established == good }).NetNS, l.Addr().(*net.TCPAddr).Port}); got.Opened[key] != good {
		t.Errorf("%d were opened, want %d", got.Opened[key], good)
	}
}
