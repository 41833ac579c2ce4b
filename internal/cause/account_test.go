package cause

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// harmed is an endpoint of 1,000 requests of 2 ms on CPUs that have time to spare.
func harmed(change func(*observe.Endpoint)) *View {
	e := observe.Endpoint{Side: observe.Served.String(), NetNS: 1, Addr: "10.0.0.1", Port: 4711, PID: 70, Comm: "shop"}
	took(&e, 1000, 2e6)
	change(&e)
	o := &observe.Observation{Endpoints: []observe.Endpoint{e}}
	o.Window.Seconds = 10
	o.Use.CPU.Idle, o.Use.CPU.User = 15, 5
	return NewView(o)
}

// took makes it an endpoint of n requests, each of which took ns of the server's own time.
func took(e *observe.Endpoint, n uint64, ns int64) {
	e.Requests, e.Recorded, e.Total = n, n, observe.Histogram{}
	e.Total.AddN(ns, n)
	e.Parts = map[string]observe.PartStats{observe.Server.String(): {SumNS: int64(n) * ns, Hist: e.Total}}
}

// slowOnes makes n requests of the server's own time.
func slowOnes(e *observe.Endpoint, n int, ns int64) {
	e.Total.AddN(ns, uint64(n))
	e.Requests, e.Recorded = e.Requests+uint64(n), e.Recorded+uint64(n)
	s := e.Parts[observe.Server.String()]
	s.SumNS += int64(n) * ns
	e.Parts[observe.Server.String()] = s
}

// split has each request of 40 ms spend ns in one part of the server's time.
func split(e *observe.Endpoint, p observe.ServerPart, ns int64) {
	e.Total = observe.Histogram{}
	e.Total.AddN(40e6, 1000)
	e.Parts[observe.Server.String()] = observe.PartStats{SumNS: 1000 * 40e6, Hist: e.Total}
	var h observe.Histogram
	h.AddN(ns, 1000)
	e.Split = &observe.SplitStats{Requests: 1000, ServerNS: 1000 * 40e6, Parts: map[string]observe.PartStats{p.String(): {SumNS: 1000 * ns, Hist: h}}}
}

func TestAccount(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*observe.Endpoint)
		kind     HarmKind // "" for none
		requests uint64
		seconds  float64
	}{
		{"healthy", func(*observe.Endpoint) {}, "", 0, 0},
		{"one in a hundred takes a second", func(e *observe.Endpoint) { slowOnes(e, 12, 1e9) }, HarmSlow, 12, 12 * 0.998},
		{"two that take a second are an accident", func(e *observe.Endpoint) { slowOnes(e, 2, 1e9) }, "", 0, 0},
		{"few milliseconds more are no harm", func(e *observe.Endpoint) { slowOnes(e, 50, 20e6) }, "", 0, 0},
		{"one in twenty fails", func(e *observe.Endpoint) { e.Statuses = map[string]uint64{"2xx": 950, "5xx": 50} }, HarmFailed, 50, 50 * failedCost},
		{"errors of the clients", func(e *observe.Endpoint) { e.Errors, e.Statuses = 300, map[string]uint64{"2xx": 700, "4xx": 300} }, "", 0, 0},
		{"a few fail", func(e *observe.Endpoint) { e.Statuses = map[string]uint64{"2xx": 995, "5xx": 5} }, "", 0, 0},
		{"all of a few fail", func(e *observe.Endpoint) { few(e, 8) }, HarmFailed, 8, 8 * failedCost},
		{"three of a few fail", func(e *observe.Endpoint) { few(e, 3) }, "", 0, 0},
		{"no answer", func(e *observe.Endpoint) { e.Unanswered = 40 }, HarmUnanswered, 40, 40 * failedCost},
		{"clients leave", func(e *observe.Endpoint) {
			e.Unanswered = 40
			e.Failed = []observe.RequestSample{{TotalNS: 1e6, Flags: []string{"unanswered", "half_closed"}}}
		}, "", 0, 0},
		{"clients give up", func(e *observe.Endpoint) {
			e.Unanswered = 40
			e.Failed = []observe.RequestSample{{TotalNS: 5e9, Flags: []string{"unanswered", "half_closed"}}}
		}, HarmUnanswered, 40, 40 * failedCost},
		{"the server hangs up", func(e *observe.Endpoint) {
			e.Unanswered = 40
			e.Failed = []observe.RequestSample{{TotalNS: 1e6, Flags: []string{"unanswered", "reset"}}}
		}, HarmUnanswered, 40, 40 * failedCost},
		{"all wait to be read", func(e *observe.Endpoint) {
			var h observe.Histogram
			h.AddN(30e6, 1000)
			e.Total = observe.Histogram{}
			e.Total.AddN(32e6, 1000)
			e.Parts[observe.RecvWait.String()] = observe.PartStats{SumNS: 1000 * 30e6, Hist: h}
		}, HarmSlow, 1000, 30},
		{"all wait for locks", func(e *observe.Endpoint) { split(e, observe.ServerLock, 30e6) }, HarmSlow, 1000, 30},
		{"all wait for an answer", func(e *observe.Endpoint) { split(e, observe.ServerCall, 30e6) }, "", 0, 0},
		{"locks take little", func(e *observe.Endpoint) { split(e, observe.ServerLock, 1e6) }, "", 0, 0},
		{"all clients read slowly", func(e *observe.Endpoint) {
			var h observe.Histogram
			h.AddN(30e6, 1000)
			e.Parts[observe.SendWait.String()] = observe.PartStats{SumNS: 1000 * 30e6, Hist: h}
		}, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := harmed(c.change)
			a := v.Account()
			v.Explain(&a, nil)
			if c.kind == "" {
				if len(a.Victims) != 0 || a.Lost != 0 {
					t.Fatalf("harm where there is none: %+v", a)
				}
				return
			}
			if len(a.Victims) != 1 || len(a.Victims[0].Harms) != 1 {
				t.Fatalf("%+v, want one harm", a)
			}
			h := a.Victims[0].Harms[0]
			if h.Kind != c.kind || h.Requests != c.requests || h.Seconds < 0.95*c.seconds || h.Seconds > 1.05*c.seconds {
				t.Errorf("%+v, want %d requests %s, %g s", h, c.requests, c.kind, c.seconds)
			}
			f, left := v.Unexplained(&a.Victims[0])
			if !left || f.Subject.PID != 70 || f.Subject.Port != 4711 || len(f.Fix.Commands) == 0 {
				t.Errorf("nothing explains it, and nobody says so: %v, %+v", left, f)
			}
		})
	}
}

// few makes it an endpoint of eight requests.
func few(e *observe.Endpoint, failed uint64) {
	took(e, 8, 2e6)
	e.Statuses = map[string]uint64{"2xx": 8 - failed, "5xx": failed}
}

// TestFrontOfMany: one request of a neighbour, as one that probes or scrapes it, or of its own
// does not make the requests of others part of the neighbour's.
func TestFrontOfMany(t *testing.T) {
	for _, c := range []struct {
		name   string
		pid    int
		calls  uint64
		victim bool
	}{{"a probe", 80, 1, true}, {"a third", 80, 350, true}, {"nearly all", 80, 1040, false}, {"its own", 70, 1040, true}} {
		v := harmed(func(e *observe.Endpoint) { slowOnes(e, 50, 1e9) })
		o := v.Observation
		probe := observe.Endpoint{Side: observe.Served.String(), NetNS: 1, Addr: "10.0.0.1", Port: 9090, PID: 80, Comm: "prometheus"}
		took(&probe, 100, 1e6)
		call := observe.Endpoint{Side: observe.Called.String(), NetNS: 1, Addr: "10.0.0.1", Port: 4711, PID: c.pid, Comm: "caller"}
		took(&call, c.calls, 1e6)
		o.Endpoints = append(o.Endpoints, probe, call)
		a := NewView(o).Account()
		if got := len(a.Victims) == 1 && a.Victims[0].Port == 4711; got != c.victim {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
}

// TestExplain gives each second to one finding.
func TestExplain(t *testing.T) {
	v := harmed(func(e *observe.Endpoint) { slowOnes(e, 20, 1e9) })
	half := func() Finding {
		f := supported(Subject{Kind: "listener", NetNS: 1, PID: 70, Port: 4711})
		cost := 12.0
		f.Impact.Cost = &cost
		return f
	}
	elsewhere := supported(Subject{Kind: "listener", NetNS: 1, PID: 71, Port: 4712})
	elsewhere.Weight = 1
	for _, c := range []struct {
		name      string
		findings  []Finding
		explained float64
		left      bool
	}{
		{"one of most of it", []Finding{half()}, 12, false},
		{"two of most of it", []Finding{half(), half()}, 20 * 0.998, false},
		{"one about another service", []Finding{elsewhere}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := v.Account()
			v.Explain(&a, c.findings)
			if d := a.Explained - c.explained; d < -0.5 || d > 0.5 || a.Explained > a.Lost {
				t.Errorf("%g of %g s explained, want %g", a.Explained, a.Lost, c.explained)
			}
			if _, left := v.Unexplained(&a.Victims[0]); left != c.left {
				t.Errorf("unexplained: %v, want %v", left, c.left)
			}
		})
	}
}

// TestNotConnected asks for the harm of clients that no service is.
func TestNotConnected(t *testing.T) {
	for _, c := range []struct {
		name     string
		connects []observe.Connect
		lost     uint64
	}{
		{"refused", []observe.Connect{{PID: 9, Comm: "cron", NetNS: 1, Family: "inet", Addr: "10.0.0.9", Port: 99, Established: 5, Failed: 40, Refused: 40}}, 40},
		{"a process for each attempt", slices.Repeat([]observe.Connect{{PID: 9, Comm: "curl", NetNS: 1, Family: "inet", Addr: "10.0.0.9", Port: 99, Failed: 2}}, 10), 20},
		{"a few while it begins", []observe.Connect{{PID: 9, Comm: "cron", NetNS: 1, Family: "inet", Addr: "10.0.0.9", Port: 99, Failed: 9, Refused: 9}}, 0},
		{"one in a thousand", []observe.Connect{{PID: 9, Comm: "cron", NetNS: 1, Family: "inet", Addr: "10.0.0.9", Port: 99, Established: 20000, Failed: 20}}, 0},
		{"many ports, once each", scan(200), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := harmed(func(*observe.Endpoint) {})
			v.Connects = c.connects
			a := v.Account()
			v.Explain(&a, nil)
			if c.lost == 0 {
				if len(a.Victims) != 0 {
					t.Fatalf("harm where there is none: %+v", a)
				}
				return
			}
			if len(a.Victims) != 1 || a.Victims[0].Harms[0] != (Harm{HarmNotConnected, c.lost, failedCost * float64(c.lost)}) {
				t.Fatalf("%+v, want %d connections", a, c.lost)
			}
			if f, left := v.Unexplained(&a.Victims[0]); !left || f.Subject.Port != 99 || f.Subject.Addr != "10.0.0.9" {
				t.Errorf("%+v, want what no cause accounts for", f)
			}
			var all []Finding
			for _, check := range []func(*View) Result{checkUpstreamRefused, checkConnectTimeout} {
				all = append(all, check(v).Findings...)
			}
			v.Explain(&a, all)
			if f, left := v.Unexplained(&a.Victims[0]); left {
				t.Errorf("%+v is left of %+v", f, a)
			}
			if cost := all[0].Impact.Cost; cost == nil || *cost != a.Explained {
				t.Errorf("it cost %v, and %v s are explained by it", cost, a.Explained)
			}
		})
	}
}

func scan(ports int) (out []observe.Connect) {
	for p := range ports {
		out = append(out, observe.Connect{PID: 9, Comm: "scan", NetNS: 1, Family: "inet", Addr: "10.0.0.9", Port: 1 + p, Failed: 1, Refused: 1})
	}
	return out
}

// TestSampledWaits: where a sample stands for the slow requests, its finding says so, and accounts
// for as much of all that was lost as the sample shows; the rest stays unexplained.
func TestSampledWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		part float64 // of the slow time that is lost to the lock
		left bool
	}{
		{"all of them wait for the lock", 0.95, false},
		{"most suffer from what the sample does not show", 0.3, true},
	} {
		const n = 3000
		g := waitGraph(observe.SlowTime{PID: nginxMaster, Requests: n, Sampled: 500, NS: n * 300 * ms, LongestNS: 300 * ms})
		o := healthy()
		quiet(nginxServed().add(7000, ms, ms, 0, quick).add(n, ms, ms, 0, parts{observe.Server: 300 * ms}))(o)
		g.Shares = []observe.WaitShare{waitShare(nginxMaster, int64(c.part*n*300)*ms, c.part*n, ends(observe.EndSleep, "sleeps",
			hop(nginxWorker1, nginxWorker1, observe.WaitFileLock, observe.WantsRelease, "flock", "fd 20 → /srv/seats.lock"),
			peer(hop(backupPID, backupPID, observe.WaitSleep, "", "clock_nanosleep", ""), observe.HowOwner, "holds the lock on that file")))}
		o.Waits = g
		v := NewView(o)
		r := checkFileLock(v)
		if (len(r.Findings) == 0) != c.left {
			t.Fatalf("%s: %+v", c.name, r)
		}
		a := v.Account()
		for i := range r.Findings {
			v.Price(&r.Findings[i])
			if e := r.Findings[i].Evidence[1]; e.Value != 500 || e.Limit != n {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
		v.Explain(&a, r.Findings)
		if len(a.Victims) == 0 {
			t.Fatalf("%s: nobody is harmed", c.name)
		}
		if _, left := v.Unexplained(&a.Victims[0]); left != c.left {
			t.Errorf("%s: unexplained %t: %+v", c.name, left, a.Victims[0])
		}
	}
}

// TestPortWithoutListener: requests on the port that is asked for are judged where nothing
// listened there when the window began, and those on others are not.
func TestPortWithoutListener(t *testing.T) {
	v := harmed(func(e *observe.Endpoint) { slowOnes(e, 50, 1e9) })
	for port, want := range map[int]int{4711: 1, 4712: 0} {
		v.Filter.Port = port
		if a := NewView(v.Observation).Account(); len(a.Victims) != want {
			t.Errorf("port %d: %+v, want %d", port, a, want)
		}
	}
}
