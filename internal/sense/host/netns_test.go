package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/osthread"
)

// privateNetNS makes a network namespace with its loopback up. It lives as long
// as the NetNS is open. Skips when not root.
func privateNetNS(t testing.TB) *NetNS {
	t.Helper()
	needRoot(t)
	var n *NetNS
	err := osthread.Own(func() (err error) { // never unlocked: the thread ends in its namespace
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			if err = loopbackUp(); err == nil {
				n, err = Default().OpenNetNS(unix.Gettid())
			}
		}
		return err
	})
	if err != nil {
		t.Skip("SKIPPED: cannot make a network namespace: ", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
}

func TestDoRunsInsideAndComesBack(t *testing.T) {
	home, err := netNSLink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	n := privateNetNS(t)
	if n.Inode() == home {
		t.Fatal("not a namespace of its own")
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			err := n.Do(func() error {
				if unix.Gettid() == unix.Getpid() {
					return errors.New("on the main thread")
				}
				inside, err := netNSLink("/proc/thread-self/ns/net")
				if err != nil || inside != n.Inode() {
					return fmt.Errorf("in namespace %d: %w", inside, err)
				}
				time.Sleep(time.Millisecond)
				if i%10 == 0 {
					return os.ErrDeadlineExceeded
				}
				return nil
			})
			if (i%10 == 0) != errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(i, err)
			}
		})
	}
	wg.Wait()
	if err := n.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("what leaves its goroutine is no error")
	}
	// Inside, it is our own namespace, and Do of Do needs no switch.
	if err := n.Do(func() error { return n.Do(func() error { return nil }) }); err != nil {
		t.Error(err)
	}
	waitNoThreadIn(t, n.Inode())
}

// waitNoThreadIn fails when a thread of this process stays in the namespace.
func waitNoThreadIn(t *testing.T, inode uint64) {
	t.Helper()
	var left string
	for range 100 {
		left = ""
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if in, err := netNSLink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && in == inode {
				left += " " + task.Name()
			}
		}
		if left == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("threads left in the namespace:%s", left)
}

// TestDoGivesUpThreadThatCannotReturn takes from the thread inside the right to
// switch back.
func TestDoGivesUpThreadThatCannotReturn(t *testing.T) {
	n := privateNetNS(t)
	var tid int
	err := n.Do(func() error {
		tid = unix.Gettid()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		return unix.Capset(&hdr, &none[0])
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); errors.Is(err, os.ErrNotExist) {
			waitNoThreadIn(t, n.Inode())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("thread %d is still alive", tid)
}

func TestOwnNamespaceNeedsNoRights(t *testing.T) {
	n, err := Default().OpenNetNS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.PID() != os.Getpid() {
		t.Error(n.PID())
	}
	c, err := n.Counters()
	if _, ok := c["TcpExt.ListenOverflows"]; err != nil || !ok || len(c) < 100 {
		t.Error(len(c), err)
	}
	if s, err := n.SockStat(); err != nil || s["sockets.used"] == 0 {
		t.Error(s, err)
	}
	if _, err := n.Listeners(); err != nil {
		t.Error(err)
	}
	if err := n.Sockets(func(*SocketSample) {}); err != nil {
		t.Error(err)
	}
	if _, err := n.Conntrack(); err != nil && !errors.Is(err, ErrNoConntrack) {
		t.Error(err)
	}
}

func TestSysctlsInsideDifferFromHost(t *testing.T) {
	n := privateNetNS(t)
	const name = "net.core.somaxconn"
	if err := n.Do(func() error { return os.WriteFile("/proc/sys/net/core/somaxconn", []byte("77"), 0) }); err != nil {
		t.Fatal(err)
	}
	host, err := Default().OpenNetNS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if got := n.Sysctls([]string{name})[name]; got != "77" {
		t.Errorf("inside: %q", got)
	}
	if got := host.Sysctls([]string{name})[name]; got == "77" || got == "" {
		t.Errorf("host: %q", got)
	}
	if got := n.Sysctls([]string{"net.ipv4.ip_local_port_range"})["net.ipv4.ip_local_port_range"]; strings.Count(got, " ") != 1 {
		t.Errorf("%q", got)
	}
}

func TestCountersInside(t *testing.T) {
	n := privateNetNS(t)
	a, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	port := listen(t, n, unix.AF_INET, 5)
	connect(t, n, port, 3)
	b, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if got := CountersBetween(a, b)["Tcp.ActiveOpens"]; got != 3 {
		t.Errorf("%d connections opened, want 3", got)
	}
}
