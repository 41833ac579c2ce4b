package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// web starts the web server. behind is what it calls, or nil.
func (s *starter) web(behind *behind) error {
	spec := webSpec{Service: s.v.Web, Addr: s.v.ServerAddr, Port: s.v.FrontPort, Backlog: s.v.AppBacklog, TLS: s.v.TLS, Leak: s.v.Transport.Leak, Files: s.v.Transport.Files, Behind: behind}
	return s.startWeb(s.box.Server, "booking-app", spec)
}

func (s *starter) startWeb(side *sandbox.Side, name string, spec webSpec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	err = s.startAt(side, name, WebRole, sandbox.Spec{Env: []string{appEnv + "=" + string(data)}, NoFile: s.v.NoFile, Cgroup: s.cgroup})
	if err != nil {
		return err
	}
	if err := side.Listening(s.ctx, spec.Port); err != nil {
		said, _ := os.ReadFile(s.box.Dir + "/" + name + ".out")
		return fmt.Errorf("%s: %w: %.300s", name, err, said)
	}
	return nil
}

func (s *starter) webBackend() error {
	at := behind{HTTP: net.JoinHostPort(s.v.BackendAddr, strconv.Itoa(s.v.BackPort))}
	err := s.startWeb(s.box.Backend, "price-service", webSpec{Service: s.v.Backend, Addr: s.v.BackendAddr, Port: s.v.BackPort, Backlog: s.v.AppBacklog})
	if err != nil {
		return err
	}
	return s.web(&at)
}

// webSpec is an HTTP server and how it behaves.
type webSpec struct {
	Service
	Addr    string
	Port    int
	Backlog int
	TLS     TLS
	Leak    bool   // it keeps the connections that clients have closed
	Files   uint64 // its soft limit of open files; 0 = as far as it may
	Behind  *behind
}

// behind is what a web server calls: one of these.
type behind struct {
	HTTP string // host:port
	SQL  *sqlSpec

	Redis string // host:port
	Cache string // host:port of a memcached
}

// caller makes one call, over a connection that it keeps or makes.
type caller interface {
	call(ctx context.Context) error
}

func (w *webSpec) serve() error {
	if w.Files > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: w.Files, Max: 1 << 14}); err != nil {
			return fmt.Errorf("web: file limit: %w", err)
		}
	}
	c, err := w.caller() // before anybody can ask
	if err != nil {
		return fmt.Errorf("web: %w", err)
	}
	secure, err := w.TLS.config(c)
	if err != nil {
		return fmt.Errorf("web: %w", err)
	}
	fd, err := listen(w.Addr, w.Port, w.Backlog)
	if err != nil {
		return fmt.Errorf("web: %w", err)
	}
	if w.EventLoop {
		return w.loop(fd)
	}
	f := os.NewFile(uintptr(fd), "listener")
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("web: %w", err)
	}
	f.Close()
	for {
		conn, err := l.Accept()
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		go w.connection(conn.(*net.TCPConn), secure, c)
	}
}

func (w *webSpec) caller() (caller, error) {
	switch {
	case w.Behind == nil:
		return nil, nil
	case w.Behind.SQL != nil:
		return w.Behind.SQL.open()
	case w.Behind.Redis != "":
		return newRedisCaller(w.Behind.Redis), nil
	case w.Behind.Cache != "":
		return newCacheCaller(w.Behind.Cache), nil
	default:
		return &httpCaller{url: "http://" + w.Behind.HTTP + "/", client: &http.Client{
			Timeout:   20 * time.Second,
			Transport: &http.Transport{DisableKeepAlives: w.CallClose, MaxIdleConnsPerHost: 1000},
		}}, nil
	}
}

// leaked are the connections that are kept for nothing.
var leaked sync.Map

type httpCaller struct {
	url    string
	client *http.Client
}

func (h *httpCaller) call(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// connection answers the requests of one connection, one after the other.
func (w *webSpec) connection(tcp *net.TCPConn, secure *tls.Config, c caller) {
	var conn net.Conn = tcp
	if secure != nil {
		conn = tls.Server(tcp, secure)
	}
	if w.Leak {
		leaked.Store(conn, true)
	} else {
		defer conn.Close()
	}
	tcp.SetNoDelay(!w.Nagle)
	if w.SendBuffer > 0 {
		tcp.SetWriteBuffer(w.SendBuffer)
	}
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		status := http.StatusOK
		for range w.Calls {
			if err := c.call(context.Background()); err != nil {
				status = http.StatusBadGateway
				fmt.Fprintln(os.Stderr, "call:", err)
				break
			}
		}
		time.Sleep(w.Work)
		if err := w.answer(conn, status, req.Close); err != nil || req.Close {
			return
		}
	}
}

// answer writes a response, in as many pieces as it is to have.
func (w *webSpec) answer(to io.Writer, status int, last bool) error {
	msg := w.message(status, last)
	pieces := max(1, w.Pieces)
	if w.Stall > 0 {
		pieces = max(2, pieces)
	}
	for n := range pieces {
		from, till := n*len(msg)/pieces, (n+1)*len(msg)/pieces
		if n == pieces/2 {
			time.Sleep(w.Stall)
		}
		if _, err := to.Write(msg[from:till]); err != nil {
			return err
		}
	}
	return nil
}

// message is a whole response.
func (w *webSpec) message(status int, last bool) []byte {
	var b bytes.Buffer
	body := []byte("Hello World\n")
	if w.Size > 0 {
		body = bytes.Repeat([]byte("0123456789abcde\n"), w.Size/16+1)[:w.Size]
	}
	mode := "keep-alive"
	if last {
		mode = "close"
	}
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: %s\r\n\r\n",
		status, http.StatusText(status), len(body), mode)
	b.Write(body)
	return b.Bytes()
}
