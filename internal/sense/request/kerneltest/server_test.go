package kerneltest

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/lab/netns"
)

const (
	asking    = "GET /known HTTP/1.1\r\nHost: test\r\n\r\n"
	answering = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	last      = "GET /last HTTP/1.1\r\nHost: test\r\n\r\n" // the server closes after the answer

	// sleeping is how long the server takes for an answer.
	sleeping = 20 * time.Millisecond
	// patience ends an exchange that hangs.
	patience = 20 * time.Second
)

// server answers requests one by one, each after sleeping.
type server struct {
	net.Listener
	port int
	done sync.WaitGroup
}

// listen starts a server at addr, which has port 0, in a network namespace;
// nil is this one.
func listen(t *testing.T, ns *os.File, addr string) *server {
	t.Helper()
	var l net.Listener
	if err := inside(ns, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, port: l.Addr().(*net.TCPAddr).Port}
	s.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.done.Go(func() { s.serve(t, c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.done.Wait()
	})
	return s
}

func inside(ns *os.File, f func() error) error {
	if ns == nil {
		return f()
	}
	return netns.Do(ns, f)
}

func (s *server) serve(t *testing.T, c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	for {
		got, err := readHead(in)
		if err != nil {
			return // the client is done
		}
		time.Sleep(sleeping)
		if _, err := c.Write([]byte(answering)); err != nil {
			t.Errorf("answer: %v", err)
		}
		if got == last {
			return
		}
	}
}

func readHead(in *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		head.WriteString(line)
		if line == "\r\n" {
			return head.String(), nil
		}
	}
}

// client asks on one connection. It knows how long each answer took.
type client struct {
	net.Conn
	in    *bufio.Reader
	addr  netip.AddrPort
	asked []string
	took  []time.Duration // from before a request was sent until after its answer was read
}

func dial(t *testing.T, ns *os.File, s *server) *client {
	t.Helper()
	var conn net.Conn
	if err := inside(ns, func() (err error) {
		conn, err = net.Dial("tcp", s.Addr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &client{Conn: conn, in: bufio.NewReader(conn), addr: netip.MustParseAddrPort(conn.LocalAddr().String())}
}

func (c *client) ask(t *testing.T, request string) {
	t.Helper()
	began := time.Now()
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	head, err := readHead(c.in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.Discard(len("ok")); err != nil {
		t.Fatal(err)
	}
	c.asked = append(c.asked, request)
	c.took = append(c.took, time.Since(began))
	if head+"ok" != answering {
		t.Fatalf("answer %q", head)
	}
}
