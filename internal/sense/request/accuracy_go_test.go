package request_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/netns"
)

// goServer is testdata/h2go in a place of a trial.
func (tr *trial) goServer(says, flags string) *tlsServer {
	tr.t.Helper()
	cert, key := writeCertificate(tr, tr.t.TempDir())
	return tr.startTLS(exec.Command(tr.buildGo(flags), says, cert, key))
}

// buildGo builds testdata/h2go with flags of the linker.
func (tr *trial) buildGo(flags string) string {
	tr.t.Helper()
	path := filepath.Join(tr.t.TempDir(), "h2go")
	if out, err := exec.Command("go", "build", "-ldflags", flags, "-o", path, "./testdata/h2go").CombinedOutput(); err != nil {
		tr.t.Skipf("SKIP: %v: streams under Go's TLS are NOT tested: %s", err, out)
	}
	return path
}

// goClient is a connection of HTTP/2 by net/http.
type goClient struct {
	*http.Client
	at   string
	port int
	conn net.Conn // below TLS
}

// goClient connects, and agrees on a protocol.
func (s *tlsServer) goClient(protocol string) *goClient {
	c := &goClient{at: "https://" + s.addr.String(), conn: s.dialNet(s.place, s.addr)}
	c.port = c.conn.LocalAddr().(*net.TCPAddr).Port
	conn := tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	s.must(conn.Handshake())
	c.Client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, MaxConnsPerHost: 1, DisableCompression: true,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	return c
}

// goReady is a connection whose socket is known by now: it has had three streams.
func (s *tlsServer) goReady() *goClient {
	c := s.goClient("h2")
	for range 3 {
		s.must(c.ask(context.Background(), "a", 0))
	}
	return c
}

// ask has a stream, and returns when it is over.
func (c *goClient) ask(ctx context.Context, what string, delay time.Duration) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/%s?ms=%d", c.at, what, delay.Milliseconds()), nil)
	if err != nil {
		return err
	}
	r, err := c.Do(q)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return err
}

// warmGo has requests overlap until streams are distinguished.
func (s *tlsServer) warmGo() {
	s.t.Helper()
	c := s.goClient("h2")
	defer c.CloseIdleConnections()
	for deadline := time.Now().Add(15 * time.Second); s.streams.Load() == 0; {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { s.must(c.ask(context.Background(), "a", time.Duration(10*i)*time.Millisecond)) })
		}
		all.Wait()
		if time.Now().After(deadline) {
			s.t.Fatalf("requests overlap, and none was distinguished: %v", s.recorder.Stats().Missing)
		}
	}
}

// TestStreamsUnderGo: each stream has a record, at the times at which the server read and
// wrote its frames, also where the program has no symbols.
func TestStreamsUnderGo(t *testing.T) {
	for name, flags := range map[string]string{"symbols": "", "stripped": "-s -w"} {
		t.Run(name, func(t *testing.T) { measure(t, func(tr *trial) { streamsUnderGo(tr, "frames", flags) }) })
	}
}

// TestHandlersOfGo: frames are read before net/http's handlers begin, and written after
// they answer, by no more than goroutines wait for a CPU.
func TestHandlersOfGo(t *testing.T) {
	measure(t, func(tr *trial) { streamsUnderGo(tr, "handlers", "") })
}

func streamsUnderGo(tr *trial, says, flags string) {
	s := tr.goServer(says, flags)
	tr.record(request.Options{})
	s.warmGo()
	const connections, atOnce, turns = 4, 50, 5
	var clients []*goClient
	for range connections {
		c := s.goReady()
		defer c.CloseIdleConnections()
		clients = append(clients, c)
	}
	time.Sleep(20 * time.Millisecond)
	began := time.Now().UnixNano()
	var all sync.WaitGroup
	for i, c := range clients {
		n := atOnce / connections
		if i == 0 {
			n = atOnce
		}
		for k := range n {
			all.Go(func() {
				for turn := range turns {
					what := string("aablax"[(k+turn)%6])
					if err := c.ask(context.Background(), what, time.Duration(5+3*(k%16)+turn)*time.Millisecond); err != nil {
						tr.t.Errorf("%s: %v", what, err)
					}
				}
			})
		}
	}
	all.Wait()
	time.Sleep(settle)
	if lost := tr.recorder.Stats().Streams; lost != 0 {
		tr.errorf("%d streams had no place", lost)
	}
	tr.finish()

	want := (atOnce + (connections-1)*(atOnce/connections)) * turns
	if says != "handlers" {
		tr.agree(s, began, want, medianLimit, nil)
		return
	}
	tr.agree(s, began, want, p99Limit, func(x told, read int64) {
		if early := time.Duration(read - x.asked); early > medianLimit {
			tr.errorf("a handler began %v before its request was read", early)
		}
	})
}

// TestStreamsUnderGoEnd: streams that are reset by either end, whose connection is closed,
// and that last; and that requests of HTTP/1.1 of the same server stay what they are.
func TestStreamsUnderGoEnd(t *testing.T) { measure(t, streamsUnderGoEnd) }

func streamsUnderGoEnd(tr *trial) {
	const short, lasting = 60 * time.Millisecond, 2100 * time.Millisecond
	s := tr.goServer("frames", "-s -w")
	tr.record(request.Options{})
	s.warmGo()
	type want struct {
		what         string
		ask          func(*goClient)
		flags, never observe.RequestFlags
		total        time.Duration
	}
	all := map[int]want{} // by port
	for _, w := range []want{
		{"reset by the caller", func(c *goClient) {
			ctx, cancel := context.WithTimeout(context.Background(), short)
			defer cancel()
			_ = c.ask(ctx, "n", 0)
		}, observe.FlagReset | observe.FlagUnanswered, observe.FlagTruncated, short},
		{"reset by the server", func(c *goClient) { _ = c.ask(context.Background(), "r", short) },
			observe.FlagReset | observe.FlagUnanswered, observe.FlagTruncated, short},
		{"closed by the caller", func(c *goClient) {
			time.AfterFunc(short, func() { c.conn.Close() })
			_ = c.ask(context.Background(), "l", 2*short)
		}, observe.FlagTruncated, observe.FlagUnanswered, short},
		{"long", func(c *goClient) { tr.must(c.ask(context.Background(), "l", lasting)) }, 0, observe.FlagUnanswered | observe.FlagReset, lasting},
	} {
		c := s.goReady()
		w.ask(c)
		all[c.port] = w
		defer c.CloseIdleConnections()
	}
	one := s.goClient("http/1.1")
	defer one.CloseIdleConnections()
	for range 3 {
		tr.must(one.ask(context.Background(), "q", 0))
	}
	time.Sleep(settle)
	tr.finish()

	const exact = 25 * time.Millisecond // of sleeps on a busy machine
	n := map[int]int{}
	for _, r := range tr.of(observe.Served) {
		port := int(r.Peer.Port())
		if port == one.port && r.Flags&observe.FlagMultiplexed == 0 {
			n[port]++
		}
		w, known := all[port]
		if !known || r.Seq != 4 || r.Flags&observe.FlagMultiplexed == 0 {
			continue
		}
		if r.Flags&observe.FlagUnfinished != 0 {
			n[0]++
			continue
		}
		n[port]++
		if total := time.Duration(r.TotalNS()); r.Flags&w.flags != w.flags || r.Flags&w.never != 0 || (r.Status == observe.StatusError) != (w.flags != 0) || (total-w.total).Abs() > exact {
			tr.errorf("%s: want %v, flags %v, status %v: %s", w.what, w.total, w.flags.Names(), r.Status, describe(r, r.StartNS))
		}
	}
	for port, w := range all {
		if n[port] != 1 {
			tr.errorf("%s: %d records", w.what, n[port])
		}
	}
	if n[0] != 1 {
		tr.errorf("%d streams were reported while they lasted, want 1", n[0])
	}
	if n[one.port] != 2 { // the first comes with the end of the handshake
		tr.errorf("HTTP/1.1: %d records, want 2", n[one.port])
	}
}

// TestStreamsOfGoClients: a stream has a record at either end, and the caller's contains
// the server's.
func TestStreamsOfGoClients(t *testing.T) { measure(t, streamsOfGoClients) }

func streamsOfGoClients(tr *trial) {
	s := tr.goServer("frames", "")
	tr.record(request.Options{})
	client := exec.Command(tr.buildGo("-s -w"), "load", fmt.Sprint(s.addr.(*net.TCPAddr).Port), "2", "6", "2500ms")
	tr.must(netns.Do(s.place.ns, client.Start))
	tr.must(client.Wait())
	time.Sleep(settle)
	tr.finish()

	type ends struct{ served, called map[uint32]*observe.Request }
	connections := map[uint16]ends{}
	for i := range tr.records {
		r := &tr.records[i]
		if r.Flags&observe.FlagMultiplexed == 0 {
			continue
		}
		port, pid := r.Peer.Port(), 0
		if r.Side == observe.Called {
			port, pid = r.Local.Port(), client.Process.Pid
		}
		e, known := connections[port]
		if !known {
			e = ends{map[uint32]*observe.Request{}, map[uint32]*observe.Request{}}
			connections[port] = e
		}
		here := e.served
		if r.Side == observe.Called {
			here = e.called
		}
		if here[r.Seq] != nil {
			tr.errorf("two records of stream %d of %d", r.Seq, port)
		}
		if here[r.Seq] = r; pid != 0 && r.PID != pid {
			tr.errorf("called by %d, want %d", r.PID, pid)
		}
	}
	streams := 0
	for port, e := range connections {
		if len(e.served) == 0 || len(e.called) == 0 {
			tr.errorf("%d: %d streams at the server, %d at its caller", port, len(e.served), len(e.called))
			continue
		}
		// The ends of a connection are distinguished from different streams on.
		from := max(slices.Min(slices.Collect(maps.Keys(e.served))), slices.Min(slices.Collect(maps.Keys(e.called))))
		to := min(slices.Max(slices.Collect(maps.Keys(e.served))), slices.Max(slices.Collect(maps.Keys(e.called))))
		for seq := from + 6; seq <= to; seq++ {
			served, called := e.served[seq], e.called[seq]
			if served == nil || called == nil {
				tr.errorf("stream %d of %d: served %v, called %v", seq, port, served != nil, called != nil)
				continue
			}
			streams++
			if inside, whole := served.Ledger[observe.Server], called.TotalNS(); inside > whole {
				tr.errorf("stream %d of %d: %v at the server, %v at its caller", seq, port, time.Duration(inside), time.Duration(whole))
			}
		}
	}
	if len(connections) != 2 || streams < 1000 {
		tr.errorf("%d connections, %d streams at both ends", len(connections), streams)
	}
	tr.t.Logf("%d streams at both ends", streams)
}
