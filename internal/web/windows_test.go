package web

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// waited is a chain of a worker that waits for a lock of its own process, whose
// holder waits for a database on another host.
func waited(seconds float64) observe.WaitShare {
	app := observe.WaitProcess{PID: 4711, Comm: "nginx"}
	return observe.WaitShare{PID: 4711, Threads: 3, ThreadNS: int64(seconds * 1e9), SlowNS: int64(seconds * 5e8), SlowRequests: 4, LongestNS: 2e9, FirstNS: 1e9, LastNS: 50e9,
		Chain: observe.WaitChain{Text: "nginx waits for a lock, its holder for 10.0.0.7:5432", End: observe.EndRemote, BackTo: -1, Hops: []observe.WaitHop{
			{Process: app, TID: 1, Comm: "worker", Kind: observe.WaitLock, Wants: observe.WantsRelease, Object: "mutex 0x1"},
			{Process: app, TID: 2, Comm: "holder", Kind: observe.WaitTCP, Wants: observe.WantsAnswer, How: observe.HowOwner, Why: "holds the mutex", Remote: "10.0.0.7:5432", Object: "fd 5"},
		}}}
}

func TestWaits(t *testing.T) {
	m := incident()
	for i := range 2 {
		m.window(t, noon.Add(time.Duration(5+i)*time.Minute), 60, func(o *observe.Observation) {
			o.Waits = &observe.WaitGraph{Looks: 100, EveryNS: 1e8, Shares: []observe.WaitShare{waited(10), {PID: 9, ThreadNS: 1e9, LastNS: 60e9, Chain: observe.WaitChain{End: observe.EndCycle, BackTo: 0, Sure: true,
				Hops: []observe.WaitHop{{Process: observe.WaitProcess{PID: 9, Comm: "a"}, Kind: observe.WaitLock}, {Process: observe.WaitProcess{PID: 8, Comm: "b"}, Kind: observe.WaitLock, How: observe.HowOwner}}}}}}
		})
	}
	h := serve(t, m, Options{})
	a := ask[struct {
		Nodes   []waitNode
		Edges   []waitEdge
		Chains  []graphChain
		Because *string
	}](t, h, "/api/waits?"+incidentRange())
	ids := map[string]waitNode{}
	for _, n := range a.Nodes {
		ids[n.ID] = n
	}
	if len(a.Nodes) != 5 || len(a.Chains) != 2 || a.Because != nil {
		t.Fatalf("%+v", a)
	}
	if c := a.Chains[0]; !slices.Equal(c.Nodes, []string{"p4711", "t4711.2", "remote 10.0.0.7:5432"}) || c.Seconds != 20 || c.SlowSeconds != 10 || c.Cycle {
		t.Errorf("%+v", c)
	}
	if c := a.Chains[1]; !c.Cycle || !c.Deadlock || !slices.Equal(c.Nodes, []string{"p9", "p8"}) {
		t.Errorf("%+v", c)
	}
	if !ids["remote 10.0.0.7:5432"].Culprit || ids["p4711"].Culprit || ids["t4711.2"].Culprit || ids["t4711.2"].Kind != "thread" || ids["p4711"].Seconds != 20 {
		t.Errorf("%+v", ids)
	}
	for _, e := range a.Edges {
		if _, ok := ids[e.From]; !ok {
			t.Errorf("edge from nowhere: %+v", e)
		}
		if _, ok := ids[e.To]; !ok {
			t.Errorf("edge to nowhere: %+v", e)
		}
	}
	if !slices.ContainsFunc(a.Edges, func(e waitEdge) bool {
		return e.From == "p4711" && e.To == "t4711.2" && e.How == string(observe.HowOwner) && e.Text == "holds the mutex" && e.Seconds == 20
	}) || !slices.ContainsFunc(a.Edges, func(e waitEdge) bool { return e.From == "p8" && e.To == "p9" }) {
		t.Errorf("%+v", a.Edges)
	}

	// Where stacks off the CPU were not recorded, the waits are reported as such.
	off := ask[stacksJSON](t, h, "/api/stacks?kind=off&"+incidentRange())
	if off.Frames == nil || off.Frames.Value != 22e9 || off.Frames.Children[0].Name != "nginx" || off.Frames.Children[0].Value != 20e9 || off.Frames.Children[0].Children[0].Name != "lock: waits for its release" || len(off.Notes) != 1 {
		t.Errorf("%+v", off)
	}
	if w := get(t, h, "/flame?kind=off&"+incidentRange()); w.Code != 200 || !strings.Contains(w.Body.String(), "lock: waits for its release") {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}

	// One request: the chains of its process at its time.
	type one struct {
		Wait    *chainsJSON
		Because map[string]string
	}
	id := func(at time.Duration) string {
		i := slices.IndexFunc(m.reqs, func(r store.Request) bool { return r.StartNS == noon.Add(at).UnixNano() })
		return url.QueryEscape(requestID(&m.reqs[i]))
	}
	if r := ask[one](t, h, "/api/request?id="+id(5*time.Minute+30*time.Second)); r.Wait == nil || len(r.Wait.Chains) != 1 || r.Wait.Chains[0].Hops[1].Remote != "10.0.0.7:5432" || r.Wait.Chains[0].Seconds != 10 {
		t.Errorf("%+v", r)
	}
	if r := ask[one](t, h, "/api/request?id="+id(5*time.Minute+58*time.Second)); r.Wait != nil || r.Because["wait"] == "" {
		t.Errorf("after the waits: %+v", r)
	}
}

// A window that was read for its waits is judged when that is asked for, and once.
func TestJudgedWhenAskedFor(t *testing.T) {
	m := incident()
	m.window(t, noon.Add(5*time.Minute), 60, func(o *observe.Observation) {
		o.Waits = &observe.WaitGraph{Looks: 100, EveryNS: 1e8, Shares: []observe.WaitShare{waited(10)}}
	})
	s := &server{source: m, windows: newWindowCache()}
	facts := func(j judgement) *windowFacts {
		t.Helper()
		f, err := s.facts(t.Context(), m.windows[0], j)
		if err != nil || f.waits == nil {
			t.Fatalf("%+v, %v", f, err)
		}
		return f
	}
	plain := facts(unjudged)
	if plain.judged == judged || len(plain.report.RuledOut) > 0 || facts(unjudged) != plain {
		t.Errorf("judged, or read again: %+v", plain.report)
	}
	f := facts(judged)
	if f.judged != judged || len(f.report.RuledOut)+len(f.report.NotChecked) == 0 {
		t.Errorf("not judged: %+v", f.report)
	}
	if facts(judged) != f || facts(unjudged) != f {
		t.Error("judged again")
	}
}

func TestDrops(t *testing.T) {
	m := incident()
	for i := range 3 {
		m.window(t, noon.Add(time.Duration(5+i)*time.Minute), 60, func(o *observe.Observation) {
			if i == 2 {
				return // not watched
			}
			o.Drops = &observe.Drops{Reasons: true, List: []observe.Drop{
				{Reason: "TCP_LISTEN_OVERFLOW", Location: "tcp_v4_syn_recv_sock", NetNS: 1, Kind: "tcp ack", Packets: 30, Segments: 30, In: true},
				{Reason: "QDISC_DROP", Location: "fq_codel_enqueue", NetNS: 1, Interface: "eth0", Kind: "tcp data", Packets: 10, Segments: 20},
			}}
		})
	}
	a := ask[struct {
		Layers  []dropLayer
		Packets uint64
		Clean   []string
		Windows int
	}](t, serve(t, m, Options{}), "/api/drops?from="+unixText(noon.Add(5*time.Minute))+"&to="+unixText(noon.Add(8*time.Minute)))
	got := map[string]string{}
	for _, l := range a.Layers {
		got[l.Layer] = fmt.Sprint(l.Packets, " ", l.Share, " ", len(l.Rows))
		if l.Title == "" || l.Rows[0].Where == "" || l.Rows[0].Packets != l.Packets {
			t.Errorf("%+v %+v", l, l.Rows[0])
		}
	}
	if a.Packets != 80 || a.Windows != 2 || len(got) != 2 || len(a.Clean) == 0 || slices.Contains(a.Clean, a.Layers[0].Layer) {
		t.Errorf("%v %+v", got, a)
	}
}

func TestReportIsOfTheWindowThatCoversMost(t *testing.T) {
	m := incident()
	for i := range 3 {
		m.window(t, noon.Add(time.Duration(i)*time.Minute), 60, nil)
	}
	r := ask[struct{ Window struct{ Start time.Time } }](t, serve(t, m, Options{}), "/api/report?from="+unixText(noon.Add(50*time.Second))+"&to="+unixText(noon.Add(100*time.Second)))
	if !r.Window.Start.Equal(noon.Add(time.Minute)) {
		t.Errorf("%s", r.Window.Start)
	}
}

// The windows of a longer range are judged together, as slowray why --at --for does;
// one that cannot be read is reported and costs no other.
func TestReportOfSeveralWindows(t *testing.T) {
	m := incident()
	for i := range 6 {
		m.window(t, noon.Add(time.Duration(i)*time.Minute), 60, func(o *observe.Observation) {
			o.Losses = []observe.Loss{{What: "of one window", Count: 2}}
		})
	}
	if err := os.WriteFile(m.windows[3].Path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := ask[struct {
		Schema  string
		Window  struct{ Start time.Time }
		History struct{ Windows int }
		Losses  []observe.Loss
	}](t, serve(t, m, Options{}), "/api/report?from="+unixText(noon.Add(50*time.Second))+"&to="+unixText(noon.Add(5*time.Minute)))
	if r.Schema != diagnose.SchemaReport || r.History.Windows != 3 || !r.Window.Start.Equal(noon.Add(time.Minute)) {
		t.Errorf("%+v", r)
	}
	if len(r.Losses) != 2 || r.Losses[0].Count != 6 || r.Losses[1].Count != 1 {
		t.Errorf("losses %+v", r.Losses)
	}
}

// No more windows are read than one answer may be made of, and it is reported.
func TestFewWindowsAreRead(t *testing.T) {
	m := incident()
	m.window(t, noon, 60, nil)
	for i := range 100 {
		w := m.windows[0]
		w.Start, w.End = noon.Add(time.Duration(i+1)*time.Minute), noon.Add(time.Duration(i+2)*time.Minute)
		m.windows = append(m.windows, w)
	}
	a := ask[struct {
		Windows int
		Losses  []observe.Loss
	}](t, serve(t, m, Options{}), "/api/waits?from="+unixText(noon)+"&to="+unixText(noon.Add(2*time.Hour)))
	if a.Windows != maxWindows || len(a.Losses) != 1 || a.Losses[0].Count != 101-maxWindows {
		t.Errorf("%+v", a)
	}
	all := make([]int, 101)
	for i := range all {
		all[i] = i
	}
	if got := spread(all, 5); !slices.Equal(got, []int{0, 25, 50, 75, 100}) {
		t.Errorf("%v", got)
	}
	if got := spread(all[:3], 5); len(got) != 3 {
		t.Errorf("%v", got)
	}
}
