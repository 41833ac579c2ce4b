package answer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/observe"
)

// byschema fails when a document is not by a schema.
func byschema(t *testing.T, name string, text []byte) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../../schema/" + name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// watched lets a watcher see a world from one second to another, and says what it tells.
func watched(t *testing.T, w *Watcher, from, to int64) (all []Event) {
	t.Helper()
	for s := from; s <= to; s++ {
		events, err := w.Step(context.Background(), moment(s).Add(Settle))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events...)
	}
	return all
}

func TestWatch(t *testing.T) {
	world := newWorld(8)
	world.db = func(_ string, s int64) time.Duration {
		if s >= 1000 && s < 1120 {
			return 45 * time.Millisecond
		}
		return 0
	}
	world.run(1500)
	w := NewWatcher(world, nil)
	if err := w.Learn(context.Background(), moment(990).Add(Settle)); err != nil {
		t.Fatal(err)
	}
	if len(w.Open()) != 0 {
		t.Errorf("open at the beginning: %+v", w.Open())
	}
	first := watched(t, w, 991, 1090)
	if len(first) == 0 || first[0].Kind != Onset {
		t.Fatalf("no onset: %+v", first)
	}
	last := first[len(first)-1]
	if at := last.Since.Unix() - began; last.Component.Value != "10.0.0.7:3306" || at < 998 || at > 1006 || !strings.Contains(last.Line(), "8 of 8 slow services call 10.0.0.7:3306") {
		t.Errorf("what is reported last: %s", last.Line())
	}
	table, err := w.Table(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := table.JSON(&text); err != nil {
		t.Fatal(err)
	}
	byschema(t, "fleettop.schema.json", text.Bytes())
	services := map[string]ServiceRow{}
	for _, s := range table.Services {
		services[s.Service] = s
	}
	if s := services["app:8080"]; s.Hosts != 8 || s.Abnormal != 8 || s.Rate < 60 || s.Rate > 100 || s.P99US < 90_000 || s.Worst == "" || s.WorstUS < s.P99US {
		t.Errorf("app: %+v", s)
	}
	if s := services["redis:6379"]; s.Abnormal != 0 || s.P99US > 1000 {
		t.Errorf("redis: %+v", s)
	}
	if len(table.Hosts) != 9 || len(table.Incidents) == 0 {
		t.Errorf("%d hosts, %d incidents", len(table.Hosts), len(table.Incidents))
	}
	rest := watched(t, w, 1091, 1500)
	ended := map[string]bool{}
	for _, e := range append(first, rest...) {
		line, err := e.JSON()
		if err != nil {
			t.Fatal(err)
		}
		byschema(t, "fleetevent.schema.json", line)
		if ended[e.ID] {
			t.Errorf("%s goes on after its end", e.ID)
		}
		if e.Kind == Over {
			ended[e.ID] = true
		}
	}
	if len(w.Open()) != 0 || len(ended) == 0 {
		t.Errorf("%d ended, open still: %+v", len(ended), w.Open())
	}
}

// TestLearnBefore: who begins to watch long after something went wrong, and knows since
// when, finds it as wrong as before; not when it is over, and not what he knows nothing of.
func TestLearnBefore(t *testing.T) {
	world := newWorld(2)
	world.db = func(_ string, s int64) time.Duration {
		if s >= 1300 && s < 3900 {
			return 45 * time.Millisecond
		}
		return 0
	}
	world.run(4900)
	for _, c := range []struct {
		now  int64
		open bool
	}{{1500, true}, {2400, true}, {3800, true}, {4800, false}} {
		last := 0.0
		w := NewWatcher(world, func(_ string, done float64) {
			if done < last-0.01 {
				t.Errorf("at %d: progress goes from %g back to %g", c.now, last, done)
			}
			last = done
		})
		if err := w.LearnBefore(context.Background(), moment(c.now).Add(w.settle), moment(1302)); err != nil {
			t.Fatal(err)
		}
		open := w.Open()
		if (len(open) > 0) != c.open {
			t.Errorf("at %d: %d incidents are open", c.now, len(open))
		}
		for _, i := range open {
			if at := i.Since.Unix() - began; at < 1296 || at > 1310 {
				t.Errorf("at %d: %s since %d", c.now, i.Text, at)
			}
		}
		if c.open {
			w.progress = func(string, float64) {}
			watched(t, w, c.now+1, c.now+60)
			if len(w.Open()) == 0 {
				t.Errorf("at %d: it is over a minute later", c.now)
			}
		}
	}
}

// lingering is an archive to which seconds come together with later ones.
type lingering struct{ fleet.Archive }

func (lingering) Linger(fleet.Stream) time.Duration { return 5 * time.Second }

// Who watches waits for seconds as long as hosts keep them back: to judge one before
// it is there is to miss it.
func TestWatchWaitsForSeconds(t *testing.T) {
	world := newWorld(2)
	world.run(400)
	for _, c := range []struct {
		archive fleet.Archive
		late    time.Duration
	}{{world, Settle}, {lingering{world}, 6 * time.Second}} {
		w := NewWatcher(c.archive, nil)
		if err := w.Learn(context.Background(), moment(300)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Step(context.Background(), moment(350)); err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		for _, at := range w.Newest {
			last = max(last, at)
		}
		if want := moment(350).Add(-c.late - time.Second).Unix(); last != want {
			t.Errorf("judged up to %d, want %d: %s before now", last, want, c.late)
		}
	}
}

// A host whose next seconds still wait with it is not told to be behind.
func TestSecondsThatWaitAreNotMissed(t *testing.T) {
	world := newWorld(2)
	world.run(400)
	for _, c := range []struct {
		archive fleet.Archive
		late    int
	}{{world, 1}, {lingering{world}, 0}} {
		s := newSeen(c.archive, Question{From: moment(300), To: moment(400)})
		if err := s.collect(context.Background(), c.archive, nil); err != nil {
			t.Fatal(err)
		}
		s.newest["web-1"] -= 22
		if late := s.hostsUnchecked(); len(late) != c.late {
			t.Errorf("%+v, want %d", late, c.late)
		}
	}
}

// away is an archive that is not there at times.
type away struct {
	fleet.Archive
	err  error
	upto int // points until the answer breaks off
}

func (a *away) Points(ctx context.Context, q fleet.Question, step time.Duration, f func(*fleet.Point) bool) error {
	if a.err == nil {
		return a.Archive.Points(ctx, q, step, f)
	}
	n := 0
	if err := a.Archive.Points(ctx, q, step, func(p *fleet.Point) bool {
		n++
		return n <= a.upto && f(p)
	}); err != nil {
		return err
	}
	return a.err
}

// TestWatchArchiveAway: answers that break off count nothing twice, and what was missed
// is judged later, without an alarm.
func TestWatchArchiveAway(t *testing.T) {
	world := newWorld(4)
	world.run(700)
	a := &away{Archive: world}
	w := NewWatcher(a, nil)
	if err := w.Learn(context.Background(), moment(300).Add(Settle)); err != nil {
		t.Fatal(err)
	}
	for s := int64(301); s <= 700; s++ {
		a.err, a.upto = nil, 0
		if s%50 > 40 {
			a.err, a.upto = errors.New("away"), int(s%7)
		}
		events, err := w.Step(context.Background(), moment(s).Add(Settle))
		if !errors.Is(err, a.err) {
			t.Fatal(err)
		}
		if len(events) > 0 {
			t.Errorf("second %d: %s", s, events[0].Line())
		}
	}
	if w.at != began+700 {
		t.Errorf("judged up to second %d", w.at-began)
	}
}

func TestIncidents(t *testing.T) {
	key := func(i int) fleet.Key {
		return fleet.Key{Host: fmt.Sprint("h", i), Service: "app:80", Side: observe.Served, Port: 80}
	}
	list := func(n int) (all []anomaly.Anomaly, keys []fleet.Key) {
		for i := range n {
			all = append(all, anomaly.Anomaly{Key: key(i), Since: 100})
			keys = append(keys, key(i))
		}
		return all, keys
	}
	shared := func(kind anomaly.Kind, value string, keys []fleet.Key) *anomaly.Explanation {
		return &anomaly.Explanation{Shared: []anomaly.Shared{{Component: anomaly.Component{Kind: kind, Value: value}, Text: value + ".", Explains: keys}}}
	}
	x := incidents{open: map[string]*Incident{}}
	var told []string
	step := func(at int64, a []anomaly.Anomaly, e *anomaly.Explanation) {
		for _, ev := range x.follow(at, a, e) {
			told = append(told, fmt.Sprint(at, " ", ev.Kind, " ", ev.Component.Value))
		}
	}
	a1, k1 := list(1)
	a5, k5 := list(5)
	step(102, a1, shared(anomaly.Endpoint, "app on h0", k1))
	step(103, a5, shared(anomaly.Dependency, "db", k5)) // too soon to tell
	step(107, a5, shared(anomaly.Dependency, "db", k5))
	step(108, a5, shared(anomaly.Dependency, "db", k5))
	step(120, a1, &anomaly.Explanation{Alone: k1}) // the last one that is left
	step(130, nil, &anomaly.Explanation{})
	want := []string{"102 onset app on h0", "107 update db", "120 update app:80 on h0", "130 end app:80 on h0"}
	if !reflect.DeepEqual(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if len(x.open) != 0 {
		t.Errorf("open: %+v", x.open)
	}
}

// many is an archive of hosts with endpoints of which all is well, made up as it is asked.
type many struct {
	fleet.Archive
	points []fleet.Point
}

func (m *many) Points(_ context.Context, q fleet.Question, step time.Duration, f func(*fleet.Point) bool) error {
	for at := q.From.Unix(); at < q.To.Unix(); at += int64(step / time.Second) {
		for i := range m.points {
			p := &m.points[i]
			p.At, p.Seconds = at, int(step/time.Second)
			p.Requests = uint64(20+(int(at)*31+i*17)%9) * uint64(p.Seconds)
			p.TotalUS = int64(p.Requests) * int64(1000+(int(at)*13+i*7)%300)
			p.PartsUS[observe.Server] = p.TotalUS
			p.P50US, p.P99US = 1000, 2000+int64(int(at)*7+i)%500
			if !f(p) {
				return nil
			}
		}
	}
	return nil
}

func (m *many) Hosts(context.Context) ([]fleet.HostSeen, error) { return nil, nil }

// BenchmarkStep is a second of 1,000 hosts with 20 endpoints each, without what the
// archive takes.
func BenchmarkStep(b *testing.B) {
	m := &many{}
	for h := range 1000 {
		for e := range 20 {
			m.points = append(m.points, fleet.Point{Key: fleet.Key{Host: fmt.Sprint("host-", h), Service: fmt.Sprint("service-", e, ":80"), Side: observe.Served, Addr: "10.0.0.1", Port: 80 + e}})
		}
	}
	w := NewWatcher(m, nil)
	w.at = began
	now := moment(0).Add(Settle)
	for range 100 {
		now = now.Add(time.Second)
		if _, err := w.Step(context.Background(), now); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		now = now.Add(time.Second)
		if _, err := w.Step(context.Background(), now); err != nil {
			b.Fatal(err)
		}
	}
}
