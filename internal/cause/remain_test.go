package cause

import (
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// TestRemainsAreNobodysRequests: they harm nobody, and stand in no table; those of a
// service that still lives, or was asked within the window, do.
func TestRemainsAreNobodysRequests(t *testing.T) {
	look := func(change func(*observe.Observation, *observe.Endpoint)) (victims, rows int) {
		o := healthy()
		quiet()(o)
		o.Window.Start = time.Unix(1_795_711_383, 0).UTC()
		e := remains(o).endpointCut()
		if change != nil {
			change(o, &e)
		}
		o.Endpoints = append(o.Endpoints, e)
		v := NewView(o)
		return len(v.Account().Victims), len(v.Ledgers())
	}
	if victims, rows := look(nil); victims != 0 || rows != 0 {
		t.Errorf("%d victims, %d rows of what remains of a service that is gone", victims, rows)
	}
	// Its answer was sent, and nobody has acknowledged it.
	if victims, rows := look(func(_ *observe.Observation, e *observe.Endpoint) { e.OK = 1 }); victims != 0 || rows != 0 {
		t.Errorf("%d victims, %d rows of what was answered before the window", victims, rows)
	}
	for name, change := range map[string]func(*observe.Observation, *observe.Endpoint){
		"the process lives": func(o *observe.Observation, e *observe.Endpoint) {
			o.Processes = append(o.Processes, observe.Process{PID: e.PID, PPID: 1, Comm: e.Comm, State: "S"})
		},
		"it was asked within the window": func(_ *observe.Observation, e *observe.Endpoint) { e.Arrivals[7] = 1 },
		"nobody knows which processes there are": func(o *observe.Observation, _ *observe.Endpoint) {
			o.Gaps = append(o.Gaps, observe.Gap{Kind: observe.KindProcess, Because: "not permitted"})
		},
	} {
		if victims, rows := look(change); victims != 1 || rows != 1 {
			t.Errorf("%s: %d victims, %d rows, want it judged", name, victims, rows)
		}
	}
}

// TestCommandsOfANamespaceThatIsGone: the host's own links are another matter.
func TestCommandsOfANamespaceThatIsGone(t *testing.T) {
	o := healthy()
	e := goneClients().endpointCut()
	e.NetNS = 4026532999
	o.Endpoints = []observe.Endpoint{e}
	v := NewView(o)
	if got := v.in(v.ledgers[0].ns, shell.Line("ip -s -s link")).String(); !strings.HasPrefix(got, "# in network namespace 4026532999, which has no process any more") {
		t.Errorf("%q", got)
	}
	if got := v.in(v.place(4026532998), shell.Line("ip route get 10.7.7.7")).String(); !strings.HasPrefix(got, "# in network namespace 4026532998,") {
		t.Errorf("%q, of a namespace that only connections tell of", got)
	}
	o.Processes = append(o.Processes, observe.Process{PID: 77, NetNS: 4026532999})
	v = NewView(o)
	if got := v.in(v.ledgers[0].ns, shell.Line("ip -s -s link")).String(); got != "nsenter --net=/proc/77/ns/net ip -s -s link" {
		t.Errorf("%q", got)
	}
}

// TestWhatOnlySlowrayCalls harms nobody, unless somebody else calls it too.
func TestWhatOnlySlowrayCalls(t *testing.T) {
	rows := func(caller string, more ...*traffic) int {
		o := healthy()
		slow := parts{observe.Server: 900 * ms}
		served := servedAt(40099, "127.0.0.1", 777, "proxy").add(50, ms, ms, 0, slow)
		called := callsTo(40099, "127.0.0.1", 778, caller).add(50, ms, ms, 0, slow)
		o.Endpoints = []observe.Endpoint{served.endpoint(), called.endpoint()}
		for _, m := range more {
			o.Endpoints = append(o.Endpoints, m.endpoint())
		}
		v := NewView(o)
		if n := len(v.Ledgers()); v.inView(777) != (n > 0) {
			t.Errorf("%d endpoints of what %s calls: its waits count otherwise", n, caller)
		}
		return len(v.Ledgers())
	}
	if n := rows("slowray"); n != 0 {
		t.Errorf("%d endpoints of what only slowray calls", n)
	}
	if n := rows("shop"); n != 1 {
		t.Errorf("%d endpoints of what another calls, want 1", n)
	}
	if n := rows("slowray", callsTo(40099, "127.0.0.1", 779, "shop").add(3, ms, ms, 0, quick)); n != 1 {
		t.Errorf("%d endpoints of what others call too, want 1", n)
	}
}

// TestAsked: nobody suffers before the first request of the window.
func TestAsked(t *testing.T) {
	asked := func(change func(*observe.Endpoint)) *float64 {
		o := healthy()
		o.Window.Start = time.Unix(1_795_711_383, 0).UTC()
		with(o, nginxServed().add(100, ms, ms, 0, parts{observe.Server: 200 * ms}))
		e := &o.Endpoints[0]
		clear(e.Arrivals[:60])
		if change != nil {
			change(e)
		}
		return NewView(o).Asked(&Finding{Subject: Subject{Kind: "listener", PID: nginxMaster, Port: webPort, NetNS: serverNS}})
	}
	if at := asked(nil); at == nil || *at != 6 {
		t.Errorf("asked %v, want 6 s into the window", at)
	}
	if at := asked(func(e *observe.Endpoint) { e.Arrivals[0] = 1 }); at != nil {
		t.Errorf("asked %v, want no word: requests came from the beginning", *at)
	}
	if at := asked(func(e *observe.Endpoint) { e.Slowest[0].StartNS -= 20_000 * ms }); at != nil {
		t.Errorf("asked %v, want no word: a request was in hand before", *at)
	}
}

// TestNagleShowsWhoDelaysOnly: acknowledgements that another namespace delays are not counted here.
func TestNagleShowsWhoDelaysOnly(t *testing.T) {
	evidence := func(acks uint64) int {
		o := healthy()
		quiet(nginxServed().add(200, ms, ms, observe.FlagNagle, nagled))(o)
		ns(o).Counters["TcpExt.DelayedACKs"] = acks
		n := 0
		for _, f := range nagleDelayedAck.Check(NewView(o)).Findings {
			for _, e := range f.Evidence {
				if strings.Contains(e.Source, "DelayedACKs") {
					n++
				}
			}
		}
		return n
	}
	if with, without := evidence(201), evidence(0); with != 1 || without != 0 {
		t.Errorf("%d and %d pieces of evidence of 201 and of no delayed acknowledgements", with, without)
	}
}
