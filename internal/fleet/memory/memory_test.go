package memory

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

const at0 = 1_800_000_000

// secondOf is a second in which requests took so many ms each.
func secondOf(at int64, port int, process string, ms ...int64) *store.Second {
	s := &store.Second{At: at, Process: observe.Identity{Comm: process}}
	e := &s.Endpoint
	e.Side, e.Addr, e.Port, e.Requests = "served", "10.0.0.1", port, uint64(len(ms))
	var sum int64
	for _, t := range ms {
		e.Total.Add(t * 1e6)
		sum += t * 1e6
	}
	e.Parts = map[string]observe.PartStats{"server": {SumNS: sum}, "ack_delay": {SumNS: 40e6}}
	e.Split = &observe.SplitStats{Requests: 1, ServerNS: sum / 2, Parts: map[string]observe.PartStats{"server.call": {SumNS: sum / 2}}}
	return s
}

func points(t *testing.T, a *Archive, q fleet.Question, step time.Duration) []fleet.Point {
	t.Helper()
	var all []fleet.Point
	if err := a.Points(context.Background(), q, step, func(p *fleet.Point) bool {
		all = append(all, *p)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPoints(t *testing.T) {
	a := new(Archive)
	for i := range int64(25) { // out of order
		a.AddSecond("b", secondOf(at0+24-i, 80, "nginx", 10, 20, 30))
		a.AddSecond("a", secondOf(at0+i, 80, "nginx", 1))
	}
	all := points(t, a, fleet.Question{}, 10*time.Second)
	if len(all) != 6 {
		t.Fatalf("%d points, want 3 steps of 2 hosts", len(all))
	}
	p := all[1]
	want := fleet.Key{Host: "b", Service: "nginx:80", Side: observe.Served, Addr: "10.0.0.1", Port: 80}
	if p.Key != want || p.At != at0 || p.Seconds != 10 || p.Requests != 30 || p.TotalUS != 600_000 || p.PartsUS[observe.AckDelay] != 400_000 {
		t.Errorf("got %+v", p)
	}
	if p.SplitUS[observe.ServerCall] != 600_000 {
		t.Errorf("half of the requests were followed, and the call takes all of their time: %d µs of all", p.SplitUS[observe.ServerCall])
	}
	if p.P50US < 19_600 || p.P50US > 20_400 || p.P99US < 29_400 || p.P99US > 30_600 {
		t.Errorf("p50 %d µs, p99 %d µs", p.P50US, p.P99US)
	}
	if n := points(t, a, fleet.Question{From: time.Unix(at0+5, 0), To: time.Unix(at0+7, 0), Host: "a"}, time.Second); len(n) != 2 || n[0].At != at0+5 || n[1].At != at0+6 {
		t.Errorf("two seconds of a host: %+v", n)
	}
	if n := points(t, a, fleet.Question{Side: observe.Called}, time.Second); len(n) != 0 {
		t.Errorf("%d points of calls", len(n))
	}
	if err := a.Points(context.Background(), fleet.Question{}, 1500*time.Millisecond, nil); err == nil {
		t.Error("a step of a second and a half")
	}
	// What is asked may ask again.
	if err := a.Points(context.Background(), fleet.Question{}, time.Second, func(*fleet.Point) bool {
		_, err := a.Hosts(context.Background())
		return err != nil
	}); err != nil {
		t.Error(err)
	}
}

func TestQuantilesAreThoseOfAllHosts(t *testing.T) {
	a := new(Archive)
	for h := range 10 {
		for i := range 10 {
			a.AddSecond(fmt.Sprint("h", h), secondOf(at0+int64(i), 80, "nginx", int64(1+10*h+i)))
		}
	}
	times, err := a.Quantiles(context.Background(), fleet.Question{}, []float64{0.5, 0.99})
	if err != nil || len(times) != 1 {
		t.Fatal(times, err)
	}
	s := times[0]
	if s.Hosts != 10 || s.Requests != 100 || s.QuantilesUS[0] < 49_000 || s.QuantilesUS[0] > 52_000 || s.QuantilesUS[1] < 97_000 || s.QuantilesUS[1] > 101_000 {
		t.Errorf("got %+v", s)
	}
}

func TestBatchesOnce(t *testing.T) {
	ctx, a := context.Background(), new(Archive)
	h := &fleet.Host{Name: "a", ID: "1", Labels: map[string]string{"rack": "r1"}}
	batch := func(first, last fleet.Position) *fleet.Batch {
		return &fleet.Batch{Host: h, Stream: fleet.Seconds, First: first, Last: last, Seconds: func(yield func(fleet.Position, *store.Second) bool) {
			for p := first; p <= last; p++ {
				if !yield(p, secondOf(at0+int64(p), 80, "nginx", 1)) {
					return
				}
			}
		}}
	}
	if err := a.Send(ctx, batch(1, 5)); err != nil {
		t.Fatal(err)
	}
	if a.Send(ctx, batch(5, 9)) == nil || a.Send(ctx, batch(1, 5)) == nil {
		t.Error("the same record twice")
	}
	if err := a.Send(ctx, batch(6, 9)); err != nil {
		t.Fatal(err)
	}
	if mark, _ := a.Mark(ctx, h, fleet.Seconds); mark != 9 {
		t.Errorf("mark %d", mark)
	}
	if mark, _ := a.Mark(ctx, h, fleet.Requests); mark != 0 {
		t.Errorf("mark of another stream %d", mark)
	}
	if n := len(points(t, a, fleet.Question{}, time.Second)); n != 9 {
		t.Errorf("%d points of 9 seconds", n)
	}
	// Hello is the latest, and what the caller changes later is not ours.
	for _, s := range []int64{60, 0} {
		if err := a.Hello(ctx, h, time.Unix(at0+s, 0)); err != nil {
			t.Fatal(err)
		}
	}
	h.Labels["rack"] = "r2"
	if hosts, _ := a.Hosts(ctx); len(hosts) != 1 || hosts[0].Last.Unix() != at0+60 || hosts[0].Labels["rack"] != "r1" {
		t.Errorf("hosts %+v", hosts)
	}
}

func TestRequestsAndFindings(t *testing.T) {
	a := new(Archive)
	for i := range 5 {
		r := &store.Request{Process: observe.Identity{Comm: "php"}}
		r.Side, r.StartNS = observe.Called, (at0+int64(4-i))*1e9
		r.Peer = netip.MustParseAddrPort("10.0.0.7:3306")
		a.AddRequest("a", r)
		f := &store.Finding{Start: time.Unix(at0+int64(i)*10, 0), End: time.Unix(at0+int64(i)*10+10, 0), Finding: cause.Finding{Cause: cause.ID(fmt.Sprint("cause-", i))}}
		a.AddFinding("a", f)
	}
	var seen []int64
	q := fleet.Question{Service: "php", Side: observe.Called, Port: 3306, From: time.Unix(at0+1, 0)}
	if err := a.Requests(context.Background(), q, func(host string, r *store.Request) bool {
		seen = append(seen, r.StartNS/1e9-at0)
		return len(seen) < 3
	}); err != nil || !slices.Equal(seen, []int64{1, 2, 3}) {
		t.Errorf("seconds of the requests %v, %v", seen, err)
	}
	list, err := a.Findings(context.Background(), fleet.Question{From: time.Unix(at0+15, 0), To: time.Unix(at0+30, 0)})
	if err != nil || len(list) != 2 || list[0].Cause != "cause-1" || list[1].Cause != "cause-2" {
		t.Errorf("findings of windows that overlap: %+v, %v", list, err)
	}
}
