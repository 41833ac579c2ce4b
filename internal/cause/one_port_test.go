package cause

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// At two addresses of a host two programs listen at one port: calls go to the one that has the
// address, and of the other's configuration nothing is said.
func TestOnePortOfTwoPrograms(t *testing.T) {
	o := healthy()
	idle(o)
	ns(o).Addrs = []string{"10.9.8.1", "10.9.8.2"}
	proxy := servedAt(dbPort, "10.9.8.1", 700, "haproxy").add(500, ms/10, ms/20, 0, quickServed)
	db := servedAt(dbPort, "10.9.8.2", dbPID, "mariadbd").add(400, ms/10, ms/20, 0, quickServed)
	calls := callsTo(dbPort, "10.9.8.2", 700, "haproxy").add(400, ms/10, ms/20, 0, quickCall)
	o.Endpoints = []observe.Endpoint{proxy.endpoint(), db.endpoint(), calls.endpoint()}
	for _, l := range NewView(o).ledgers {
		if l.called() && (l.here == nil || l.here.pid != dbPID) {
			t.Errorf("calls to %s lead to %+v", l.Addr, l.here)
		}
	}

	o = healthy()
	o.Processes = append(o.Processes, observe.Process{PID: 700, PPID: 1, Comm: "haproxy", NetNS: serverNS})
	v := NewView(o)
	other := *web(o)
	other.Addr, other.PID, other.PIDs, other.Comm = "10.9.8.1", 700, []int{700}, "haproxy"
	s := v.ServiceAt(serverNS, webPort, "")
	if got := v.configuredBacklog(s, &other); got != (observe.Setting{}) {
		t.Errorf("backlog of another program: %+v", got)
	}
	for _, c := range v.backlogCommands(s, &other, observe.Setting{}, 4096) {
		if strings.Contains(c.String(), "nginx") {
			t.Errorf("command of another program: %s", c)
		}
	}
	if got := v.configuredBacklog(s, web(o)); got.Value != "511" {
		t.Errorf("its own backlog: %+v", got)
	}
}

// What a neighbour resets is not what nginx refused.
func TestResetsOfNeighbours(t *testing.T) {
	r := check(&nginxWorkerConnections, func(o *observe.Observation) {
		server(o).Errors = []observe.LogKind{{Kind: "worker-connections", Count: 2}}
		ns(o).Counters["TcpExt.TCPAbortOnData"] = 9000
	})
	if len(r.Findings) != 1 || !strings.HasPrefix(r.Findings[0].Impact.Text, "2 connections closed") || *r.Findings[0].lost != 2*failedCost {
		t.Errorf("%+v", r)
	}
}

// Of nested control groups the one at its own limit is named, and none without a limit.
func TestInnermostMemoryLimit(t *testing.T) {
	r := check(&memoryPressure, inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})), pressed, func(o *observe.Observation) {
		pids := []int{fpmMaster, fpmChild1, fpmChild2}
		o.Cgroups = []observe.Cgroup{
			{Path: "/system.slice", Version: 2, PIDs: pids, MemoryAtLimit: 90},
			{Path: "/system.slice/web.slice", Version: 2, PIDs: pids, MemoryAtLimit: 90, MemoryLimitBytes: 8 << 30},
			{Path: "/system.slice/web.slice/fpm.service", Version: 2, PIDs: pids, MemoryAtLimit: 90, MemoryLimitBytes: 64 << 20},
		}
	}))
	if len(r.Findings) != 1 || r.Findings[0].Subject.Path != "/system.slice/web.slice/fpm.service" {
		t.Errorf("%+v", r)
	}
}

// A sidecar is in another list of the manifest.
func TestFieldOfSidecar(t *testing.T) {
	at := inPod{pod: &observe.Pod{Kind: "Deployment", Owner: "cart", Namespace: "shop"}, container: &observe.PodContainer{Name: "mesh", Init: true}}
	if got := at.field("resources.limits.cpu"); !strings.HasSuffix(got, ".initContainers[name=mesh].resources.limits.cpu") {
		t.Error(got)
	}
	if got := at.patchContainer("securityContext", map[string]any{"privileged": false}).String(); !strings.Contains(got, `"initContainers":[{`) || strings.Contains(got, `"containers"`) {
		t.Error(got)
	}
}

// Of several groups of no engine that were killed, what callers miss is the last one.
func TestLastOfSeveralKilled(t *testing.T) {
	r := check(&containerOOMKilled, func(o *observe.Observation) {
		k := *killed(o, "python3", -180)
		o.Containers, o.OOMKills, o.Filter.Port = nil, nil, webPort
		for i, at := range []float64{-180, -120, -60} {
			k.Container, k.Cgroup, k.LimitCgroup, k.At, k.PID = "", "/memory-"+itoa(i), "/memory-"+itoa(i), at, 990+i
			o.OOMKills = append(o.OOMKills, k)
		}
		o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: "10.9.8.1", Port: appPort, Calls: 50, Started: 50, Failed: 50, Refused: 50})
	})
	if len(r.Findings) != 1 || r.Findings[0].Subject.PID != 992 {
		t.Errorf("%+v", r)
	}
}

// What is called at a service's address, or at a port of the host, is answered behind it: where
// that is here, the call and what holds its answers up are one story.
func TestCallsThroughTranslation(t *testing.T) {
	for _, asked := range []struct {
		addr string
		port int
	}{{"10.96.0.7", 80}, {"10.9.8.1", dbPort}} {
		o := healthy()
		idle(o)
		ns(o).Addrs = []string{"10.9.8.2"}
		db := servedAt(dbPort, "10.9.8.2", dbPID, "mariadbd").add(400, ms/10, ms/20, 0, quickServed)
		calls := callsTo(asked.port, asked.addr, 700, "haproxy").add(400, ms/10, ms/20, 0, quickCall)
		o.Endpoints = []observe.Endpoint{db.endpoint(), calls.endpoint()}
		c := &o.Endpoints[1]
		led := func(to string) *ledger {
			for i := range c.Slowest {
				c.Slowest[i].Destination = to
			}
			v := NewView(o)
			for _, l := range v.ledgers {
				if l.called() {
					return l.here
				}
			}
			return nil
		}
		if len(c.Slowest) == 0 {
			c.Slowest = make([]observe.RequestSample, 3)
		}
		if here := led(""); here != nil {
			t.Errorf("%s leads to %+v, which nobody said", asked.addr, here)
		}
		if here := led(netip.AddrPortFrom(netip.MustParseAddr("10.9.8.2"), dbPort).String()); here == nil || here.pid != dbPID || len(here.callers) != 1 {
			t.Errorf("%s leads to %+v", asked.addr, here)
		}
		if here := led("10.9.8.3:3306"); here != nil {
			t.Errorf("%s leads to another node, and here to %+v", asked.addr, here)
		}
		c.Slowest[0].Workload = &observe.Workload{Namespace: "shop", Pod: "db-0", Kind: "StatefulSet", Name: "db"}
		if got, want := answeredBy(c.Slowest[:3]), "10.9.8.3:3306 (2 of 3), shop/db-0 (1 of 3)"; got != want {
			t.Errorf("answered by %s, not %s", got, want)
		}
	}
}
