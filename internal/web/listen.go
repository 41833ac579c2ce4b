package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Listener is where the page is served.
type Listener struct {
	net.Listener
	socket string // path, of a unix socket
}

const unixPrefix = "unix:"

// Listen opens "host:port" or "unix:/path". A host that is left out means
// loopback: others are let in only where they were named. A unix socket is for
// its owner (mode 0600); one that a killed process left is replaced. The error
// is one line.
func Listen(addr string) (*Listener, error) {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return listenUnix(path)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen %q: must be host:port, as 127.0.0.1:7788, or unix:/path", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen %s: the address is in use: another slowray record? Choose another port", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", addr, err)
	}
	return &Listener{Listener: l}, nil
}

func listenUnix(path string) (*Listener, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("listen unix:%s: must be an absolute path", path)
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("listen unix: %w", err)
	case st.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("listen unix:%s: there is something else than a socket", path)
	default:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, fmt.Errorf("listen unix:%s: in use: another slowray record?", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen unix: %w", err)
		}
	}
	// No moment must pass in which others can connect: the socket is made with
	// its mode, in a directory that only we can enter, and moved into place.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".slowray-")
	if err != nil {
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	l.SetUnlinkOnClose(false) // its name is another by then
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	return &Listener{Listener: l, socket: path}, nil
}

// Close ends listening and removes a unix socket.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.socket != "" {
		err = errors.Join(err, ignoreMissing(os.Remove(l.socket)))
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Public says whether others than those on this host can reach it: then a token
// is needed.
func (l *Listener) Public() bool { return l.socket == "" && !l.Loopback() }

// Loopback says whether it listens on a loopback address: what Options.Loopback
// is to be.
func (l *Listener) Loopback() bool {
	at, err := netip.ParseAddrPort(l.Addr().String())
	return l.socket == "" && err == nil && at.Addr().Unmap().IsLoopback()
}

// Address is where it is reached, as it stands in --listen.
func (l *Listener) Address() string {
	if l.socket != "" {
		return unixPrefix + l.socket
	}
	return l.Addr().String()
}

// Bounds of connections.
const (
	maxConnections  = 256 // and no more than a quarter of the descriptors that this process may have
	headerTime      = 5 * time.Second
	readTime        = 10 * time.Second
	writeTime       = maxAnswer + patience + 20*time.Second
	idleTime        = 20 * time.Second // a page asks each five seconds, Prometheus each fifteen: connections are few
	maxHeaderBytes  = 48 << 10         // room for maxQuery beside them
	shutdownTime    = 2 * time.Second
	maxLoggedErrors = 20 // of the server, an hour
)

// Serve answers on l until ctx ends, and closes l. It returns nil when ctx did.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: log.New(&fewLines{}, "web: ", 0),
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		DisableGeneralOptionsHandler: true, // OPTIONS * is no exception
	}
	// Nothing is read but the head of a request.
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
		}
		r.Body = http.NoBody
		h.ServeHTTP(w, r)
	})
	done := make(chan error, 1)
	go func() { done <- s.Serve(&limited{Listener: l, free: make(chan struct{}, connections())}) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if err := s.Shutdown(end); err != nil {
		s.Close()
	}
	<-done
	return nil
}

// connections is how many there may be at a time: the recorder needs descriptors
// too.
func connections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return maxConnections
	}
	const part, least = 4, 4
	return int(max(min(limit.Cur/part, maxConnections), least))
}

// limited is a listener with so many connections at a time; the others wait in
// the kernel's queue.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: c, free: l.free}, nil
}

type counted struct {
	net.Conn
	free chan struct{}
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { <-c.free })
	return c.Conn.Close()
}

// fewLines writes what net/http complains of to the log, but not all that a
// client can make it complain of.
type fewLines struct {
	mu    sync.Mutex
	since time.Time
	n     int
}

func (f *fewLines) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.since) > time.Hour {
		f.since, f.n = now, 0
	}
	if f.n++; f.n <= maxLoggedErrors {
		log.Printf("%q", clip(strings.TrimSpace(string(line)), 400))
	}
	return len(line), nil
}
