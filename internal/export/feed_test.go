package export

import (
	"fmt"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/store"
)

// clock is a time that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Unix(1_790_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// durationsNS are the times of the requests of a second.
var durationsNS = []int64{900_000, 1_100_000, 1_300_000, 2_100_000, 4_000_000, 12_000_000, 215_000_000}

// secondOf is a second of an endpoint: nginx, or a name of the test's own.
func secondOf(side observe.Side, addr string, port int, comm string) *store.Second {
	e := observe.Endpoint{
		Side: side.String(), NetNS: 4026531840, Addr: addr, Port: port, PID: 100, Comm: comm,
		OK: 5, Errors: 1, Unanswered: 1, BytesIn: 700, BytesOut: 70_000, Segments: 50, Retrans: 2, MinRTT: 80_000,
		Connections: 1, Statuses: map[string]uint64{"2xx": 5, "5xx": 1}, Parts: map[string]observe.PartStats{},
	}
	var server, network int64
	for _, ns := range durationsNS {
		e.Requests++
		e.Recorded++
		e.Total.Add(ns)
		e.RTT.Add(100_000)
		server += ns - 100_000
		network += 100_000
	}
	e.Parts[observe.Server.String()] = observe.PartStats{SumNS: server}
	e.Parts[observe.Network.String()] = observe.PartStats{SumNS: network}
	e.Split = &observe.SplitStats{Requests: e.Requests, ServerNS: server, Parts: map[string]observe.PartStats{
		observe.ServerCPU.String(): {SumNS: server / 4}, observe.ServerDisk.String(): {SumNS: server - server/4},
	}}
	return &store.Second{At: 1_790_000_000, Endpoint: e, Process: observe.Identity{Comm: comm, Unit: comm + ".service"}}
}

func findingOf(id, comm string, port int) cause.Finding {
	return cause.Finding{Cause: cause.ID(id), Title: "The application waits for a disk", Verdict: cause.Supported, Role: cause.RoleCause,
		Subject: cause.Subject{Kind: "listener", NetNS: 4026531840, PID: 100, Comm: comm, Port: port, Addr: "127.0.0.1"},
		Impact:  cause.Impact{Share: 0.75, Of: "slow time", Text: "75 % of the requests' time"}}
}

// fed is an exporter of n endpoints of each side that saw some seconds.
func fed(n, seconds int, opt Options) *Exporter {
	if opt.Status == nil {
		opt.Status = func() record.Status {
			return record.Status{CPUShare: 0.0123, Store: store.Stats{Bytes: 1 << 20, Requests: 12}, Requests: record.RequestStats{Slow: 4},
				Losses: []observe.Loss{{What: "requests whose record had no room", Count: 3}}}
		}
	}
	x := New(opt)
	for range seconds {
		for i := range n {
			x.add(secondOf(observe.Served, "127.0.0.1", 1+i, "nginx"))
			x.add(secondOf(observe.Called, fmt.Sprintf("10.0.%d.%d", i/250, i%250), 3306, "php-fpm8.2"))
		}
	}
	x.Window(windowOf(findingOf("blocked-on-disk", "nginx", 80)))
	return x
}

// windowOf is a window in which something was found, and something else found
// before is found no more.
func windowOf(found ...cause.Finding) *record.Window {
	w := &record.Window{Observation: &observe.Observation{Window: observe.Window{Start: time.Unix(1_790_000_000, 0), Seconds: 10}}}
	for _, f := range found {
		w.Findings = append(w.Findings, record.Finding{Finding: f, Onset: time.Unix(1_790_000_000, 0), Windows: 1, New: true})
	}
	w.Findings = append(w.Findings, record.Finding{Finding: findingOf("host-oom-killed", "java", 8080), End: time.Unix(1_790_000_000, 0), Windows: 3})
	return w
}
