package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// notice is standard error, of which a test waits for a line.
type notice struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
}

func (n *notice) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text.Write(b)
	if bytes.Contains(b, []byte("recording requests")) {
		close(n.ready)
	}
	return len(b), nil
}

func (n *notice) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// slowEcho answers every byte after a while.
func slowEcho(t *testing.T, network, addr string, after time.Duration) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
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
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					time.Sleep(after)
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l
}

// jsonRequest is what the test below looks at.
type jsonRequest struct {
	Side     string
	Addr     string
	Port     int
	PeerAddr string `json:"peer_addr"`
	PeerPort int    `json:"peer_port"`
	Process  struct {
		PID  int
		Comm string
	}
	Seq    int
	Total  float64            `json:"total_us"`
	Ledger map[string]float64 `json:"ledger_us"`
}

// TestRequestsOfThisProcess asks a server of this test a known number of times
// over IPv4 and IPv6. Every request has to be there once from each side, with
// the time that the server took.
func TestRequestsOfThisProcess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root, to load BPF programs")
	}
	const asked, took = 5, 20 * time.Millisecond
	for _, network := range []struct{ name, addr string }{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}} {
		t.Run(network.name, func(t *testing.T) {
			l := slowEcho(t, network.name, network.addr, took)
			port := l.Addr().(*net.TCPAddr).Port
			var out bytes.Buffer
			stderr := &notice{ready: make(chan struct{})}
			status := make(chan int, 1)
			go func() {
				status <- run([]string{"requests", "--port", strconv.Itoa(port), "--pid", strconv.Itoa(os.Getpid()),
					"--format", "json", "--limit", strconv.Itoa(2 * asked), "--for", "30s"}, &out, stderr)
			}()
			select {
			case <-stderr.ready:
			case s := <-status:
				t.Fatalf("exit status %d: %s", s, stderr)
			}
			askTimes(t, l.Addr(), asked)
			if s := <-status; s != exitNothing {
				t.Fatalf("exit status %d: %s", s, stderr)
			}
			checkRequests(t, out.String(), port, asked, took)
		})
	}
}

// askTimes sends single bytes and waits for each to come back.
func askTimes(t *testing.T, addr net.Addr, times int) {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 1)
	for range times {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}
}

func checkRequests(t *testing.T, out string, port, asked int, took time.Duration) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "schema", "request.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]map[int]bool{"served": {}, "called": {}}
	for line := range strings.Lines(out) {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		var r jsonRequest
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Seq < 1 || r.Seq > asked || seen[r.Side][r.Seq] {
			t.Errorf("a request too many: %s", line)
		}
		seen[r.Side][r.Seq] = true
		if at := map[string]int{"served": r.Port, "called": r.PeerPort}[r.Side]; at != port || r.Addr != r.PeerAddr {
			t.Errorf("%s request of another address: %s", r.Side, line)
		}
		if r.Process.PID != os.Getpid() || r.Process.Comm == "" {
			t.Errorf("process %d %q, it is %d: %s", r.Process.PID, r.Process.Comm, os.Getpid(), line)
		}
		// No more than a loaded machine may add, and most of it the server's.
		us := float64(took.Microseconds())
		if r.Total < us || r.Total > us+500e3 || r.Ledger["server"] < 0.9*us {
			t.Errorf("%s request of %s: %s", r.Side, took, line)
		}
	}
	for side, s := range seen {
		if len(s) != asked {
			t.Errorf("%d %s requests, %d were made", len(s), side, asked)
		}
	}
}
