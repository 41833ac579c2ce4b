package request_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/sense/threadcontext/threadcontexttest"
)

// pongs is a service that answers each PING of Redis.
func pongs(t *testing.T) (port int) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 64)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := io.WriteString(c, "+PONG\r\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// contextClient asks a service on one connection.
type contextClient struct {
	net.Conn
	answers *bufio.Reader
	seq     uint32
}

func dialContext(t *testing.T, port int) *contextClient {
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &contextClient{Conn: c, answers: bufio.NewReader(c)}
}

func (c *contextClient) port() uint16 { return uint16(c.LocalAddr().(*net.TCPAddr).Port) }

func (c *contextClient) ask(path, headers string) error {
	c.seq++
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n", path, headers); err != nil {
		return err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// endKey is an end of a request: which, the client's port and its number there.
type endKey struct {
	side string
	port uint16
	seq  uint32
}

// contextTrial records a service that publishes the contexts of its threads.
type contextTrial struct {
	*threadcontexttest.Service
	stream *request.Stream
	mu     sync.Mutex
	got    map[endKey]observe.Request
	traced atomic.Bool // any request has a trace
	sub    *request.Subscription
}

func startContexts(t *testing.T, variant string, options request.Options) *contextTrial {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root")
	}
	other := pongs(t)
	tr := &contextTrial{Service: threadcontexttest.Start(t, variant, other), got: map[endKey]observe.Request{}}
	options.Ports, options.Labels, options.Budget = []int{tr.Port, other}, true, -1
	stream, err := request.StartStream(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	tr.stream = stream
	tr.sub = stream.Subscribe(func(r *observe.Request) {
		k := endKey{"served", r.Peer.Port(), r.Seq}
		if r.Side == observe.Called {
			k.side, k.port = "called", r.Local.Port()
		}
		if r.PID != tr.PID {
			return // the other end
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.got[k] = *r
		if r.Trace.Known() {
			tr.traced.Store(true)
		}
	})
	return tr
}

// meet asks until the service is known to publish: what it says before is nobody's trace.
func (tr *contextTrial) meet(t *testing.T) {
	c := dialContext(t, tr.Port)
	for end := time.Now().Add(20 * time.Second); !tr.traced.Load(); time.Sleep(5 * time.Millisecond) {
		if err := c.ask("/s", ""); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("no request has a trace: %v", tr.stream.Stats().Missing)
		}
	}
}

// TestThreadContexts: requests that carry no trace have that of the thread that answers
// them, and calls that of the thread that asks, in whatever way it publishes it, while the
// threads take a new span in hand for each; what carries a traceparent has that.
func TestThreadContexts(t *testing.T) {
	for i, variant := range threadcontexttest.Variants {
		split := i%2 == 1
		t.Run(fmt.Sprintf("%s, split %v", variant, split), func(t *testing.T) { threadContexts(t, variant, split) })
	}
}

// TestThreadContextsThatLie: where a pointer leads nowhere nothing is read any more after
// some tries, which is reported once, and what came before keeps its trace.
func TestThreadContextsThatLie(t *testing.T) {
	tr := startContexts(t, "program", request.Options{})
	tr.meet(t)
	c := dialContext(t, tr.Port)
	const faults = 64 // MAX_FAULTS of thread_context.h
	for range 2 * faults {
		if err := c.ask("/b", ""); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	for end := time.Now().Add(20 * time.Second); len(told) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, what := range tr.stream.Stats().Missing {
			if strings.Contains(what, fmt.Sprintf("process %d ", tr.PID)) {
				told = append(told, what)
			}
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], fmt.Sprintf("%d of them in a row could not be read", faults)) {
		t.Errorf("reported: %q", told)
	}
	if n := tr.stream.Stats().Contexts; n != faults {
		t.Errorf("%d contexts were tried that cannot be read, not %d", n, faults)
	}
	time.Sleep(settle)
	if err := tr.sub.End(); err != nil {
		t.Fatal(err)
	}
	traced := 0
	for k, r := range tr.got {
		if r.Trace.Known() {
			traced++
			if k.port == c.port() {
				t.Errorf("%+v has a trace", k)
			}
		}
	}
	if traced == 0 {
		t.Error("no request has a trace")
	}
}

func threadContexts(t *testing.T, variant string, split bool) {
	tr := startContexts(t, variant, request.Options{Split: split})
	tr.meet(t)
	const clients, each = 8, 250
	kinds := []string{"/s", "/r", "/n", "/r", "/s", "/e", "/r", "/s"}
	said := map[endKey]string{} // traceparent
	asked := map[uint16]bool{}  // the clients' ports
	var mu sync.Mutex
	var work sync.WaitGroup
	for worker := range clients {
		c := dialContext(t, tr.Port)
		asked[c.port()] = true
		work.Go(func() {
			for i := range each {
				headers := ""
				if i%8 == 5 {
					parent := "00-" + randomHex(16) + "-" + randomHex(8) + "-01"
					headers = "traceparent: " + parent + "\r\n"
					mu.Lock()
					said[endKey{"served", c.port(), c.seq + 1}] = parent
					mu.Unlock()
				}
				if err := c.ask(kinds[(i+worker)%len(kinds)], headers); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	time.Sleep(settle) // the last acknowledgements are delayed
	if err := tr.sub.End(); err != nil {
		t.Fatal(err)
	}
	tr.judge(t, asked, said, clients*each)
}

// judge compares what was recorded with what the service noted.
func (tr *contextTrial) judge(t *testing.T, asked map[uint16]bool, said map[endKey]string, requests int) {
	type count struct{ instrumented, joined, wrong, carried int }
	counts := map[string]*count{"served": {}, "called": {}}
	noted := map[endKey]bool{}
	for _, n := range tr.Notes(t) {
		k := endKey{n.Side, n.Port, n.Seq}
		noted[k] = true
		r, c := tr.got[k], counts[n.Side]
		want, context := n.Span, n.Span != "-"
		if parent := said[k]; parent != "" {
			want, context = strings.ReplaceAll(parent[3:52], "-", ""), false
		}
		got := "-"
		if r.Trace.Known() {
			got = hex.EncodeToString(r.Trace.ID[:]) + hex.EncodeToString(r.Trace.Parent[:])
		}
		warm := !asked[n.For] // the service may not have been known yet
		switch {
		case got == "-":
		case got != want, r.Flags&observe.FlagThreadContext != 0 != context:
			c.wrong++
			t.Logf("%+v: got %s, flags %v, want %s", k, got, r.Flags.Names(), want)
		case context && r.Trace.Flags != observe.TraceSampled:
			c.wrong++
			t.Logf("%+v: flags of the trace %#x", k, r.Trace.Flags)
		case context && !warm:
			c.joined++
		case !context:
			c.carried++
		}
		if context && !warm {
			c.instrumented++
		}
	}
	for k, r := range tr.got {
		if !noted[k] && r.Trace.Known() {
			t.Errorf("%+v has a trace, and the service knows nothing of it", k)
		}
	}
	for side, c := range counts {
		t.Logf("%s: %d of %d instrumented requests have their thread's trace, %d wrong; %d carry one", side, c.joined, c.instrumented, c.wrong, c.carried)
		if c.wrong > 0 || c.instrumented < requests/2 || c.joined < c.instrumented*95/100 {
			t.Errorf("%s: %d of %d joined, %d wrong", side, c.joined, c.instrumented, c.wrong)
		}
	}
	if n := counts["served"].carried; n < len(said)*95/100 {
		t.Errorf("%d of %d requests have the trace that they carry", n, len(said))
	}
	if n := tr.sub.Stats().Contexts; n > 0 {
		t.Errorf("%d contexts could not be read", n)
	}
}
