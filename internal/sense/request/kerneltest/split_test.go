package kerneltest

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// TestServerSplit: what a thread does between reading and answering is reported, or
// that this kernel cannot tell it.
func TestServerSplit(t *testing.T) {
	const n = 5
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	r := start(t, request.Options{Ports: []int{port}, Budget: -1, Split: true})
	var answers sync.WaitGroup
	answers.Go(func() {
		runtime.LockOSThread() // it ends with this goroutine
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		fd := int(f.Fd()) // blocking from here on
		for range n {
			if _, err := unix.Read(fd, make([]byte, 100)); err != nil {
				t.Error(err)
			}
			left := unix.NsecToTimespec(int64(sleeping))
			for unix.Nanosleep(&left, &left) == unix.EINTR {
			}
			if _, err := unix.Write(fd, []byte(answering)); err != nil {
				t.Error(err)
			}
		}
	})
	c := dial(t, nil, &server{Listener: l, port: port})
	for range n {
		c.ask(t, asking)
	}
	answers.Wait()
	served, _ := collect(t, r, nil, port)
	tell(t, r)
	missing := false
	for _, what := range r.Stats().Missing {
		missing = missing || strings.HasPrefix(what, "what the server did with its time")
	}
	if missing == kernelHas(t, "6.3") {
		t.Errorf("said to be missing: %v", missing)
	}
	if len(served) != n {
		for _, q := range served {
			t.Logf("%+v", q)
		}
		t.Fatalf("%d requests, want %d", len(served), n)
	}
	for i, q := range served {
		if q.Followed == missing {
			t.Errorf("followed: %v", q.Followed)
			continue
		}
		if !q.Followed {
			continue
		}
		// An emulated machine may do nothing for a long time at any point.
		slept, server := time.Duration(q.Split[observe.ServerSleep]), q.Ledger[observe.Server]
		if slept < sleeping-2*time.Millisecond || q.Split.Sum() != server {
			t.Errorf("request %d slept %s of %s, want %s: %v", i, slept, time.Duration(server), sleeping, q.Split)
		}
	}
}
