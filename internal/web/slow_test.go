package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// pipes is a listener whose connections hold nothing: what is not read cannot be
// written.
type pipes struct {
	coming chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.coming:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// ask sends a request and reads the line that tells the status.
func (p *pipes) ask(t *testing.T, path string) (*bufio.Reader, net.Conn, string) {
	t.Helper()
	mine, its := net.Pipe()
	p.coming <- its
	fmt.Fprintf(mine, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	r := bufio.NewReaderSize(mine, 16)
	status, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return r, mine, status
}

// Clients that do not read what they asked for keep nobody else from their answers,
// and not all memory is taken for them.
func TestClientsThatDoNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	h := serve(t, incident(), Options{Loopback: true, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x 1\n", 100_000))
	})})
	p := &pipes{coming: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, p, h) }()
	var conns []net.Conn
	refused := 0
	large := "/api/requests?limit=1000&from=" + unixText(noon) + "&to=" + unixText(noon.Add(12*time.Minute)) // three quarters of a megabyte
	for range maxWaiting - 1 {
		_, c, status := p.ask(t, large)
		conns = append(conns, c)
		switch {
		case strings.Contains(status, " 503 "):
			refused++
		case !strings.Contains(status, " 200 "):
			t.Fatal(status)
		}
	}
	if refused == 0 {
		t.Error("all of them have an answer waiting in memory")
	}
	for range maxHeavy + 1 {
		_, c, status := p.ask(t, "/metrics")
		if conns = append(conns, c); !strings.Contains(status, " 200 ") {
			t.Errorf("a scrape next to slow ones: %s", status)
		}
	}
	r, c, status := p.ask(t, "/api/status")
	conns = append(conns, c)
	if !strings.Contains(status, " 200 ") {
		t.Errorf("another client: %s", status)
	}
	for { // all of it comes
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"losses"`) {
			break
		}
	}
	for _, c := range conns {
		c.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// OPTIONS * is answered by net/http itself unless that is switched off: it is no
// exception to what may be asked, and by whom.
func TestOptionsOfTheServer(t *testing.T) {
	p := &pipes{coming: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, p, serve(t, incident(), Options{Loopback: true})) }()
	mine, its := net.Pipe()
	p.coming <- its
	fmt.Fprint(mine, "OPTIONS * HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
	if status, err := bufio.NewReader(mine).ReadString('\n'); err != nil || !strings.Contains(status, " 405 ") {
		t.Errorf("%q, %v", status, err)
	}
	mine.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
