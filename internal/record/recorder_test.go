package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// memory is a Store, and a Sink, that keeps what concerns one port.
type memory struct {
	mu       sync.Mutex
	port     int
	seconds  []store.Second
	requests []store.Request
	windows  []*observe.Observation
	told     struct{ seconds, requests, windows int }
	syncs    int
	fail     error // of Sync
}

func (m *memory) AddRequest(r *store.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Side == observe.Served && int(r.Local.Port()) == m.port {
		m.requests = append(m.requests, *r)
	}
}

func (m *memory) AddSecond(s *store.Second) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Endpoint.Side == "served" && s.Endpoint.Port == m.port {
		m.seconds = append(m.seconds, *s)
	}
}

func (m *memory) AddObservation(o *observe.Observation, _ []cause.Finding) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.windows = append(m.windows, o)
	return nil
}

func (m *memory) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncs++
	return m.fail
}

func (m *memory) Stats() store.Stats { return store.Stats{} }

func (m *memory) Second(int64, []store.Second) { m.count(&m.told.seconds) }
func (m *memory) Request(*store.Request)       { m.count(&m.told.requests) }
func (m *memory) Window(*Window)               { m.count(&m.told.windows) }

func (m *memory) count(n *int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*n++
}

// service is a small server: /sleep?ms=N answers after so long, /fail with 500.
func service(t *testing.T) (get func(path string) time.Duration, port int) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sleep":
			ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
			time.Sleep(time.Duration(ms) * time.Millisecond)
		case "/fail":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(srv.Close)
	address, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, _ = strconv.Atoi(address.Port())
	return func(path string) time.Duration {
		began := time.Now()
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return time.Since(began)
	}, port
}

// TestRecordsWhatAClientDid records the requests of a client that counts them
// and knows how long the server slept. On a machine with so much else to do that
// records are lost it is tried again.
func TestRecordsWhatAClientDid(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: the recorder is NOT tested")
	}
	for range 2 {
		problems, lost := recordClient(t)
		if len(problems) == 0 {
			return
		}
		if !lost {
			t.Fatal(strings.Join(problems, "\n"))
		}
		t.Logf("records were lost, once more: %s", strings.Join(problems, "\n"))
	}
	problems, _ := recordClient(t)
	for _, p := range problems {
		t.Error(p)
	}
}

// recordClient says what is wrong, and whether records were lost.
func recordClient(t *testing.T) (problems []string, lost bool) {
	t.Helper()
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	get, port := service(t)
	m := &memory{port: port, fail: errors.New("the disk is gone")}
	var trouble []string
	var troubles sync.Mutex
	alive := 0
	r, err := New(m, Options{
		Window: 3 * time.Second, Budget: -1, Version: "test", Sinks: []Sink{m}, Alive: func() { alive++ },
		Trouble: func(err error) {
			troubles.Lock()
			defer troubles.Unlock()
			trouble = append(trouble, err.Error())
		},
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("SKIP: %v: the recorder is NOT tested", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	const quick, slow, failed = 150, 3, 4
	for range quick {
		get("/")
	}
	time.Sleep(1200 * time.Millisecond) // a second is over: what is usual is known
	var longest time.Duration
	for range slow {
		longest = max(longest, get("/sleep?ms=120"))
	}
	for range failed {
		get("/fail")
	}
	time.Sleep(2500 * time.Millisecond) // a window is over
	cancel()
	ending := time.Now()
	<-done
	if took := time.Since(ending); took > 3*time.Second {
		wrong("it took %s to end, more than 3 s", took)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	var sum observe.Endpoint
	last := int64(0)
	for i := range m.seconds {
		s := &m.seconds[i]
		sum.Requests += s.Endpoint.Requests
		sum.Connections += s.Endpoint.Connections
		sum.Total.Merge(&s.Endpoint.Total)
		if s.Process.Comm == "" || s.At <= last {
			wrong("second %d after %d, of %q", s.At, last, s.Process.Comm)
		}
		last = s.At
	}
	if all := uint64(quick + slow + failed); sum.Requests != all || sum.Total.Count() != all || sum.Connections == 0 {
		wrong("%d requests in the seconds, %d of them timed, on %d connections; the client made %d", sum.Requests, sum.Total.Count(), sum.Connections, all)
	}
	var n [3]int
	var stands uint64
	for i := range m.requests {
		q := &m.requests[i]
		n[q.Why]++
		stands += uint64(q.Weight)
		if server := time.Duration(q.Ledger[observe.Server]); q.Why == store.Slow && q.TotalNS() > int64(100*time.Millisecond) {
			if server < 120*time.Millisecond || server > longest {
				wrong("the server slept 120 ms and the client waited %s at most; recorded is %s", longest, server)
			}
		}
		if q.Process.Comm == "" {
			wrong("a request has no process")
		}
	}
	if n[store.Slow] < slow || n[store.Slow] > slow+10 || n[store.Failed] != failed {
		wrong("%d slow and %d failed requests are kept, there were %d and %d", n[store.Slow], n[store.Failed], slow, failed)
	}
	if stands < quick/4 || stands > 4*quick {
		wrong("the requests kept stand for %d, there were %d", stands, quick+slow+failed)
	}
	if len(m.windows) == 0 || m.told.windows != len(m.windows) || m.told.requests < len(m.requests) || m.told.seconds < 2 || alive < 2 {
		wrong("%d windows kept; told of %+v; alive %d times", len(m.windows), m.told, alive)
	}
	if m.syncs < 2 {
		wrong("made durable %d times", m.syncs)
	}
	troubles.Lock()
	defer troubles.Unlock()
	if len(trouble) == 0 || len(trouble) > 3 || trouble[0] != "the disk is gone" {
		wrong("trouble told: %q, want that of the disk, once while it lasts", trouble)
	}
	for _, l := range r.Status().Losses {
		lost = lost || l.Count > 0
	}
	return problems, lost
}
