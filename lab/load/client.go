package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// clientSpec is what the load client gets through its environment.
type clientSpec struct {
	Load     Load
	Target   string
	Duration time.Duration
}

// ClientMain makes the load its environment describes and prints the outcome
// as JSON.
func ClientMain() error {
	var spec clientSpec
	if err := json.Unmarshal([]byte(os.Getenv(clientEnv)), &spec); err != nil {
		return fmt.Errorf("load client: %w", err)
	}
	if spec.Load.Idle > 0 {
		return spec.hold(os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // ends it early
	defer stop()
	outcome := spec.run(ctx)
	return json.NewEncoder(os.Stdout).Encode(outcome)
}

// hold opens idle connections one after the other, which fits the shortest
// accept queue, says so, and keeps them.
func (s clientSpec) hold(out io.Writer) error {
	for range s.Load.Idle {
		conn, err := net.DialTimeout("tcp", s.Target, 10*time.Second)
		if err != nil {
			return fmt.Errorf("load client: idle connection: %w", err)
		}
		defer conn.Close()
	}
	if _, err := fmt.Fprintln(out, "open"); err != nil {
		return err
	}
	time.Sleep(s.Duration)
	return nil
}

// client is the shared state of all connections.
type client struct {
	clientSpec
	began                                 time.Time
	due                                   <-chan time.Time // when each request is due; nil = at once
	good, bad, connect, read, write, late atomic.Int64
	shared                                []over // of clients that share connections
	mu                                    sync.Mutex
	latency                               []time.Duration
}

// run makes the load until its time is over, or ctx.
func (s clientSpec) run(ctx context.Context) Outcome {
	c := &client{clientSpec: s, began: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, s.Duration)
	defer cancel()
	if s.Load.Rate > 0 {
		c.due = schedule(ctx, s.Load.Rate)
	}
	if s.Load.HTTP2 || s.Load.RPC {
		c.shared = make([]over, (s.Load.Conns+clientsPerConn-1)/clientsPerConn)
		for n := range c.shared {
			c.shared[n] = c.over(n)
		}
	}
	var wg sync.WaitGroup
	for n := range s.Load.Conns {
		wg.Go(func() { c.connection(ctx, n) })
	}
	wg.Wait()
	return c.outcome(time.Since(c.began))
}

// schedule gives the due time of one request after the other. A request that
// is not sent in time keeps its due time, so that waiting is part of its
// latency.
func schedule(ctx context.Context, rate float64) <-chan time.Time {
	due := make(chan time.Time, 1<<16)
	go func() {
		defer close(due)
		next := time.Now()
		for ctx.Err() == nil {
			for !next.After(time.Now()) {
				select {
				case due <- next:
				default: // far behind: the load is no longer what was asked for
				}
				next = next.Add(time.Duration(float64(time.Second) / rate))
			}
			time.Sleep(time.Until(next))
		}
	}()
	return due
}

// connection is one client: it makes requests one after the other, over one
// connection as long as that is kept.
func (c *client) connection(ctx context.Context, number int) {
	var conn net.Conn
	var r *bufio.Reader
	var forget func() bool
	drop := func() {
		if conn != nil {
			forget()
			conn.Close()
			conn = nil
		}
	}
	defer drop()
	dialer := c.dialer(number)
	var sessions tls.ClientSessionCache
	if c.Load.Resume {
		sessions = tls.NewLRUClientSessionCache(1)
	}
	for ctx.Err() == nil {
		if !c.awaitTurn(ctx) {
			return
		}
		start := time.Now()
		if c.due != nil {
			select {
			case <-ctx.Done():
				return
			case t, ok := <-c.due:
				if !ok {
					return
				}
				start = t
			}
		}
		if c.shared != nil {
			c.stream(ctx, c.shared[number/clientsPerConn], start)
			continue
		}
		if conn == nil {
			var err error
			if conn, err = dialer.DialContext(ctx, "tcp", c.Target); err != nil {
				c.failed(ctx, err, &c.connect)
				continue
			}
			forget = context.AfterFunc(ctx, func(whole net.Conn) func() { return func() { whole.SetDeadline(time.Now()) } }(conn))
			if conn, err = c.secured(ctx, conn, sessions); err != nil {
				c.failed(ctx, err, &c.connect)
				drop()
				continue
			}
			r = bufio.NewReaderSize(c.paced(conn), bufferSize)
		}
		keep, err := c.request(ctx, conn, r, start)
		if tcp, ok := conn.(*net.TCPConn); ok && c.Load.Reset {
			tcp.SetLinger(0)
		}
		if err != nil || !keep || c.Load.First {
			drop()
		}
	}
}

// secured is the connection with TLS on it, if it is to be.
func (c *client) secured(ctx context.Context, conn net.Conn, sessions tls.ClientSessionCache) (net.Conn, error) {
	if !c.Load.TLS {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ClientSessionCache: sessions})
	return secure, secure.HandshakeContext(ctx)
}

// bufferSize is what is read at a time, of a client that does not read slowly.
const bufferSize = 64 << 10

// dialer connects from the address whose turn it is.
func (c *client) dialer(number int) *net.Dialer {
	d := &net.Dialer{Timeout: c.patience()}
	if c.Load.Sources > 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(198, 51, 100, byte(1+number%c.Load.Sources))}
	}
	if c.Load.ReadBuf > 0 { // before the connection is made: the window's scale depends on it
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			ctlErr := raw.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, c.Load.ReadBuf)
			})
			return errors.Join(err, ctlErr)
		}
	}
	return d
}

// awaitTurn waits for the next burst, or as long as the client thinks.
func (c *client) awaitTurn(ctx context.Context) bool {
	pause := c.Load.Think
	if c.Load.Burst > 0 {
		pause = c.Load.Burst - time.Since(c.began)%c.Load.Burst
	}
	if pause == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// paced is a connection that is read slowly, if it is to be.
func (c *client) paced(conn net.Conn) io.Reader {
	if c.Load.ReadPause == 0 {
		return conn
	}
	return &slowReader{conn, c.Load.ReadBytes, c.Load.ReadPause}
}

type slowReader struct {
	from  io.Reader
	bytes int
	pause time.Duration
}

func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.from.Read(p[:min(len(p), s.bytes)])
}

// patience is how long one request may take.
func (c *client) patience() time.Duration {
	if c.Load.GiveUp > 0 {
		return c.Load.GiveUp
	}
	return 10 * time.Second
}

// request makes one request and reads the whole answer.
func (c *client) request(ctx context.Context, conn net.Conn, r *bufio.Reader, start time.Time) (keep bool, err error) {
	deadline := time.Now().Add(c.patience())
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	conn.SetDeadline(deadline)
	if ctx.Err() != nil { // the load ended before the deadline was set
		return false, ctx.Err()
	}
	mode := "keep-alive"
	if c.Load.Close {
		mode = "close"
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: %s\r\n\r\n", c.Target, mode); err != nil {
		c.failed(ctx, err, &c.write)
		return false, err
	}
	resp, err := http.ReadResponse(r, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err != nil {
		c.failed(ctx, err, &c.read)
		return false, err
	}
	c.answered(start, resp.StatusCode)
	return !resp.Close, nil
}

// answered counts an answer.
func (c *client) answered(start time.Time, status int) {
	took := time.Since(start)
	if status < 400 {
		c.good.Add(1)
	} else {
		c.bad.Add(1)
	}
	if took > c.Load.timeout() {
		c.late.Add(1)
	}
	c.mu.Lock()
	c.latency = append(c.latency, took)
	c.mu.Unlock()
}

// failed counts an error, unless it only says that the load is over.
func (c *client) failed(ctx context.Context, err error, kind *atomic.Int64) {
	end, _ := ctx.Deadline()
	var timeout net.Error
	switch {
	case ctx.Err() != nil || time.Until(end) < time.Millisecond:
	case errors.As(err, &timeout) && timeout.Timeout():
		c.late.Add(1)
	default:
		kind.Add(1)
		time.Sleep(time.Millisecond) // a refused connection must not become a busy loop
	}
}

func (c *client) outcome(d time.Duration) Outcome {
	slices.Sort(c.latency)
	sum := time.Duration(0)
	for _, l := range c.latency {
		sum += l
	}
	return Outcome{
		Mean:     sum / time.Duration(max(1, len(c.latency))),
		Duration: d, Requests: c.good.Load() + c.bad.Load(), Non2xx: c.bad.Load(),
		Connect: c.connect.Load(), Read: c.read.Load(), Write: c.write.Load(), Timeout: c.late.Load(),
		P50: quantile(c.latency, 0.50), P90: quantile(c.latency, 0.90), P99: quantile(c.latency, 0.99), Max: quantile(c.latency, 1),
	}
}

// quantile of a sorted list; 0 if it is empty.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
