package web

import (
	"context"
	"crypto/rand"
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

	sys "golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/accept"
	"github.com/slowray/slowray/internal/safefile"
)

// Listener is where the page is served.
type Listener struct {
	net.Listener
	socket string // path, of a unix socket
	dir    *os.Root
	name   string // of the socket in dir
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
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", addr, err)
	}
	return &Listener{Listener: l}, nil
}

func listenUnix(path string) (*Listener, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("listen unix:%s: must be an absolute path", path)
	}
	dir, name, err := safefile.Parent(path)
	if errors.Is(err, safefile.ErrUnsafe) {
		return nil, fmt.Errorf("listen unix:%s: %w, and could put another socket there", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	l, err := listenIn(dir, name, path)
	if err != nil {
		dir.Close()
		return nil, err
	}
	return &Listener{Listener: l, socket: path, dir: dir, name: name}, nil
}

// listenIn makes a socket with a name in a directory, in which others may make files too.
func listenIn(dir *os.Root, name, path string) (net.Listener, error) {
	held, err := dir.Open(".")
	if err != nil {
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	defer held.Close()
	switch st, err := dir.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("listen unix: %w", err)
	case st.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("listen unix:%s: there is something else than a socket", path)
	default:
		if c, err := net.DialTimeout("unix", below(held, name), time.Second); err == nil {
			c.Close()
			return nil, fmt.Errorf("listen unix:%s: in use: another slowray record?", path)
		}
		if err := dir.Remove(name); err != nil {
			return nil, fmt.Errorf("listen unix: %w", err)
		}
	}
	// No moment must pass in which others can connect: the socket is made with
	// its mode, in a directory that only we can enter, and moved into place.
	made := ".slowray-" + rand.Text()
	if err := dir.Mkdir(made, 0o700); err != nil {
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	defer dir.Remove(made)
	private, err := dir.Open(made)
	if err != nil {
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	defer private.Close()
	if st, err := private.Stat(); err != nil || !st.IsDir() || int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() || st.Mode().Perm() != 0o700 {
		return nil, fmt.Errorf("listen unix:%s: somebody else changes what is in the directory", path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: below(private, "s"), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen unix: %w", err)
	}
	l.SetUnlinkOnClose(false) // its name is another by then
	from, to := int(private.Fd()), int(held.Fd())
	err = sys.Fchmodat(from, "s", 0o600, 0)
	if err == nil {
		err = sys.Renameat(from, "s", to, name)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen unix:%s: %w", path, err)
	}
	return l, nil
}

// below is a name in a directory that is open, whatever the directory's own name is:
// an address of a socket is a path.
func below(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// Close ends listening and removes a unix socket.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.socket != "" {
		// Closing again does nothing.
		if removed := l.dir.Remove(l.name); removed != nil && !errors.Is(removed, fs.ErrNotExist) && !errors.Is(removed, fs.ErrClosed) {
			err = errors.Join(err, removed)
		}
		l.dir.Close()
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
	maxHeaderBytes  = 48 << 10         // room for maxQuery next to them
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
	go func() { done <- s.Serve(accept.Within(l, limitsOf(l))) }()
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

// limitsOf are how many connections a listener may have. Where others than those on this
// host reach it, none of them takes more than half of them.
func limitsOf(l net.Listener) accept.Limits {
	limits := accept.Limits{Most: accept.Share(4, maxConnections), Wait: true}
	if own, ok := l.(*Listener); ok && own.Public() {
		limits.PerHost = max(limits.Most/2, 1)
	}
	return limits
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
