package accept

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// server says "in" to whom it accepts, until that one has gone.
func server(t *testing.T, limits Limits) (address string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Within(inner, limits)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.WriteString(c, "in")
				c.Read(make([]byte, 1)) // until it is closed
				c.Close()
				c.Close() // gives its place back once
			}()
		}
	}()
	return inner.Addr().String()
}

// open connects from one of the addresses of the loopback device, and says whether it is
// let in.
func open(t *testing.T, from, to string, wait time.Duration) (net.Conn, bool) {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}).Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(wait))
	n, _ := io.ReadFull(c, make([]byte, 2))
	return c, n == 2
}

const long = 10 * time.Second

func TestOneAddressHasItsShare(t *testing.T) {
	to := server(t, Limits{Most: 8, PerHost: 2})
	var first net.Conn
	in := 0
	for i := range 4 * 5 {
		if c, ok := open(t, fmt.Sprint("127.0.0.", 2+i%5), to, long); ok {
			if in++; first == nil {
				first = c
			}
		}
	}
	if in != 8 {
		t.Errorf("%d of five addresses are in, want 8", in)
	}
	if _, ok := open(t, "127.0.0.9", to, long); ok {
		t.Error("one more than all are in")
	}
	first.Close()
	for end := time.Now().Add(long); ; time.Sleep(time.Millisecond) {
		if _, ok := open(t, "127.0.0.9", to, long); ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody gets in where one has gone")
		}
	}
}

func TestWhoIsOverWaits(t *testing.T) {
	to := server(t, Limits{Most: 2, Wait: true})
	first, ok := open(t, "127.0.0.2", to, long)
	_, also := open(t, "127.0.0.2", to, long)
	if !ok || !also {
		t.Fatal("two are not in")
	}
	third, ok := open(t, "127.0.0.2", to, 50*time.Millisecond)
	if ok {
		t.Fatal("a third is in")
	}
	first.Close()
	third.SetReadDeadline(time.Now().Add(long))
	if n, err := io.ReadFull(third, make([]byte, 2)); n != 2 {
		t.Errorf("the third does not get in when one has gone: %v", err)
	}
}

func TestShare(t *testing.T) {
	if n := Share(4, 256); n < 4 || n > 256 {
		t.Errorf("%d", n)
	}
	if n := Share(1<<40, 256); n != 4 {
		t.Errorf("%d of next to none", n)
	}
}
