package store

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/observe"
)

// Each condition chooses what it says, in logs and in files.
func TestQueries(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	tr := newTraffic(11)
	var all []Request
	for i := range 3000 {
		var r Request
		tr.next(&r, noon.UnixNano()+int64(i)*200e6+int64(tr.rng.IntN(1000)))
		if i%3 == 0 {
			r.Side = observe.Called
			r.Local, r.Peer = r.Peer, r.Local
		}
		s.AddRequest(&r)
		all = append(all, stored(r))
		if i%1500 == 1499 {
			must(t, s.Sync())
			c.set(c.now().Add(5 * time.Minute))
			must(t, s.Sync())
			must(t, s.keep())
		}
	}
	for i := range 20 {
		var r Request
		tr.next(&r, noon.UnixNano()+int64(600+i)*1e9)
		s.AddRequest(&r)
		all = append(all, stored(r))
	}
	must(t, s.Sync())
	r, err := OpenReader(dir)
	must(t, err)

	endpoint := func(r *Request) (addr string, port int) {
		e := r.Local
		if r.Side == observe.Called {
			e = r.Peer
		}
		return e.Addr().String(), int(e.Port())
	}
	for name, one := range map[string]struct {
		q    Query
		want func(*Request) bool
	}{
		"all":          {Query{}, func(*Request) bool { return true }},
		"from":         {Query{From: noon.Add(100 * time.Second)}, func(r *Request) bool { return r.StartNS >= noon.Add(100*time.Second).UnixNano() }},
		"to":           {Query{To: noon.Add(100 * time.Second)}, func(r *Request) bool { return r.StartNS < noon.Add(100*time.Second).UnixNano() }},
		"nothing":      {Query{From: noon.Add(time.Hour), To: noon}, func(*Request) bool { return false }},
		"side":         {Query{Side: observe.Called}, func(r *Request) bool { return r.Side == observe.Called }},
		"served":       {Query{Side: observe.Served}, func(r *Request) bool { return r.Side == observe.Served }},
		"netns":        {Query{NetNS: 4026531841}, func(r *Request) bool { return r.NetNS == 4026531841 }},
		"addr":         {Query{Addr: "10.0.0.3"}, func(r *Request) bool { a, _ := endpoint(r); return a == "10.0.0.3" }},
		"port":         {Query{Port: 8002, Side: observe.Called}, func(r *Request) bool { _, p := endpoint(r); return p == 8002 && r.Side == observe.Called }},
		"comm":         {Query{Comm: "svc-1"}, func(r *Request) bool { return r.Process.Comm == "svc-1" }},
		"pid":          {Query{PID: 1011}, func(r *Request) bool { return r.PID == 1011 }},
		"container":    {Query{Container: "shop-svc-2"}, func(r *Request) bool { return r.Process.ContainerName == "shop-svc-2" }},
		"id":           {Query{Container: all[7].Process.Container[:62]}, func(r *Request) bool { return r.Process.Container[:62] == all[7].Process.Container[:62] }},
		"unit":         {Query{Unit: "docker-4"}, func(r *Request) bool { return r.Process.Unit == "docker-4.service" }},
		"unit.service": {Query{Unit: "docker-4.service"}, func(r *Request) bool { return r.Process.Unit == "docker-4.service" }},
		"slow":         {Query{MinTotal: 100 * time.Millisecond}, func(r *Request) bool { return r.TotalNS() >= 100e6 }},
		"slow and a range": {Query{MinTotal: 2 * time.Millisecond, From: noon.Add(time.Minute), To: noon.Add(8 * time.Minute), Comm: "svc-6"}, func(r *Request) bool {
			return r.TotalNS() >= 2e6 && r.StartNS >= noon.Add(time.Minute).UnixNano() && r.StartNS < noon.Add(8*time.Minute).UnixNano() && r.Process.Comm == "svc-6"
		}},
	} {
		var want []Request
		var total observe.Histogram
		for i := range all {
			if one.want(&all[i]) {
				want = append(want, all[i])
				total.AddN(all[i].TotalNS(), uint64(all[i].Weight))
			}
		}
		if name != "nothing" && len(want) == 0 {
			t.Fatalf("%s chooses nothing", name)
		}
		t.Run(name, func(t *testing.T) {
			sameRequests(t, readAll(t, dir, one.q), want)
			got, err := r.Totals(one.q)
			must(t, err)
			if got.Count() != total.Count() || got.Quantile(0.99) != total.Quantile(0.99) {
				t.Errorf("totals: %d, p99 %d, want %d, %d", got.Count(), got.Quantile(0.99), total.Count(), total.Quantile(0.99))
			}
			slowest, err := r.Slowest(one.q, 7)
			must(t, err)
			slices.SortFunc(want, func(a, b Request) int { return cmp.Compare(b.TotalNS(), a.TotalNS()) })
			for i := range slowest {
				if slowest[i].TotalNS() != want[i].TotalNS() {
					t.Errorf("slowest %d takes %d, want %d", i, slowest[i].TotalNS(), want[i].TotalNS())
				}
			}
			if len(slowest) != min(7, len(want)) {
				t.Errorf("%d slowest", len(slowest))
			}
		})
	}
	n := 0
	must(t, r.Requests(Query{}, func(*Request) bool { n++; return n < 5 }))
	if n != 5 {
		t.Errorf("%d requests after the end was asked for", n)
	}
	must(t, s.Close())
}

// The pieces of a range follow each other and are it, and the coarser ones lie on
// their own grid.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Int64Range(-5e9, 5e9).Draw(t, "from")
		to := from + rapid.Int64Range(-10, 4e9).Draw(t, "length")
		list := pieces(from, to)
		at := from
		for _, p := range list {
			if p.from != at || p.to <= p.from {
				t.Fatalf("%d to %d: %v", from, to, list)
			}
			if w := widthOf(p.kind) * 1e6; w > 1e6 && (floorTo(p.from, w) != p.from || floorTo(p.to, w) != p.to) {
				t.Fatalf("%d to %d: %v is not on its grid", from, to, p)
			}
			at = p.to
		}
		if from < to && at != to || from >= to && len(list) > 0 {
			t.Fatalf("%d to %d: %v", from, to, list)
		}
	})
}

// Points of any step have all that was in the range, and where single seconds are
// no longer kept, those of ten seconds stand in.
func TestPoints(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	tr := newTraffic(12)
	for i := range 1000 {
		c.set(noon.Add(time.Duration(i) * time.Second))
		sec := tr.second(i%3, c.now().Unix(), 2)
		s.AddSecond(&sec)
		must(t, s.Sync())
		if i%300 == 0 {
			must(t, s.keep())
		}
	}
	r, err := OpenReader(dir)
	must(t, err)
	look := func(q Query, step, wantStep time.Duration, wantRequests uint64) {
		t.Helper()
		series, err := r.Series(q, step)
		must(t, err)
		var sum, points uint64
		for _, one := range series {
			last := int64(-1)
			for i := range one.Points {
				p := &one.Points[i]
				if p.At <= last || p.At%int64(wantStep/time.Second) != 0 {
					t.Errorf("step %v: point at %d after %d", step, p.At, last)
				}
				last = p.At
				points += p.Endpoint.Requests
			}
			sum += one.Endpoint.Requests
			if one.Step != wantStep {
				t.Errorf("step %v instead of %v", one.Step, wantStep)
			}
		}
		if points != wantRequests || sum != wantRequests {
			t.Errorf("step %v: %d requests in points, %d in sums, want %d", step, points, sum, wantRequests)
		}
		points = 0
		must(t, r.Points(q, step, func(sec *Second) bool { points += sec.Endpoint.Requests; return true }))
		if points != wantRequests {
			t.Errorf("step %v: %d requests in Points, want %d", step, points, wantRequests)
		}
	}
	for _, step := range []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, time.Hour} {
		look(Query{}, step, max(step, time.Second), 2000)
	}
	look(Query{}, 3*time.Second, 5*time.Second, 2000)
	look(Query{}, 24*time.Hour+1, 48*time.Hour, 2000)
	look(Query{Port: 8001}, 10*time.Second, 10*time.Second, 666)
	look(Query{From: noon.Add(100 * time.Second), To: noon.Add(200 * time.Second)}, time.Second, time.Second, 200)

	must(t, s.Close())
	list, err := segmentsIn(t, dir, kindSeconds)
	must(t, err)
	for _, seg := range list {
		must(t, os.Remove(seg.path))
	}
	look(Query{}, time.Second, 10*time.Second, 2000)
}

// The span of a young history is what was recorded, though sums begin on the grid
// of their width; that of an old one reaches as far back as the coarsest sums.
func TestSpan(t *testing.T) {
	dir := t.TempDir()
	began := noon.Add(3*time.Minute + 17*time.Second)
	c := &clock{t: began}
	s := openAt(t, dir, Options{}, c)
	tr := newTraffic(5)
	for i := range int64(20) {
		sec := tr.second(1, began.Unix()+i, 2)
		s.AddSecond(&sec)
	}
	must(t, s.Sync())
	r, err := OpenReader(dir)
	must(t, err)
	check := func(when string, want time.Time) {
		t.Helper()
		from, to, err := r.Span()
		if must(t, err); !from.Equal(want) || !to.Equal(began.Add(20*time.Second)) {
			t.Errorf("%s: from %v to %v, want %v to %v", when, from, to, want, began.Add(20*time.Second))
		}
	}
	check("in the log", began)
	must(t, s.Close())
	check("in files", began)

	// Where single seconds are gone the sums of ten seconds tell, then those of five
	// minutes.
	old, err := segmentsIn(t, dir, kindSeconds)
	must(t, err)
	later := segment{kind: kindSeconds, first: old[0].first + 1000, last: old[0].last + 1000, low: 9, high: 9}
	must(t, os.Rename(old[0].path, filepath.Join(dir, later.name())))
	from, _, err := r.Span()
	if must(t, err); !from.Equal(began.Truncate(10 * time.Second)) {
		t.Errorf("without single seconds: from %v", from)
	}
	tens, err := segmentsIn(t, dir, kindSeconds10)
	must(t, err)
	must(t, os.Remove(tens[0].path))
	from, _, err = r.Span()
	if must(t, err); !from.Equal(noon) {
		t.Errorf("without ten seconds: from %v", from)
	}
}

// A host that calls ever new addresses: those called most are reported one by one, the
// others together, and none is lost.
func TestMoreEndpointsThanCanBeTold(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	tr := newTraffic(3)
	one, busy := tr.second(1, noon.Unix(), 1), tr.second(2, noon.Unix(), 30)
	want := map[string]uint64{}
	const seconds, each = 20, 500
	for i := range int64(seconds) {
		for j := range each {
			sec := one
			sec.At, sec.Endpoint.Side, sec.Endpoint.Addr = noon.Unix()+i, "called", fmt.Sprintf("10.0.%d.%d", i*2+int64(j/250), j%250)
			if j%10 == 0 {
				sec.Endpoint.Side = "served"
			}
			s.AddSecond(&sec)
			want[sec.Endpoint.Side] += sec.Endpoint.Requests
		}
		busy.At = noon.Unix() + i
		s.AddSecond(&busy)
		want[busy.Endpoint.Side] += busy.Endpoint.Requests
	}
	check := func(stage string) {
		t.Helper()
		r, err := OpenReader(dir)
		must(t, err)
		for _, q := range []Query{{}, {To: noon.Add(time.Hour)}, {From: noon.Add(-time.Hour), To: noon.Add(time.Hour)}} {
			list, err := r.Endpoints(q)
			must(t, err)
			if len(list) > maxSums || len(list) < maxSums/2 {
				t.Errorf("%s: %d endpoints", stage, len(list))
			}
			got := map[string]uint64{}
			for i := range list {
				e := &list[i].Endpoint
				got[e.Side] += e.Requests
				if e.Comm == busy.Endpoint.Comm && e.Requests != seconds*busy.Endpoint.Requests {
					t.Errorf("%s: the busy endpoint has %d requests", stage, e.Requests)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: %v requests, want %v", stage, got, want)
			}
		}
		for _, step := range []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute} {
			got, points := map[string]uint64{}, 0
			must(t, r.Points(Query{}, step, func(sec *Second) bool {
				got[sec.Endpoint.Side] += sec.Endpoint.Requests
				points++
				return true
			}))
			if !maps.Equal(got, want) {
				t.Errorf("%s, %s: %v requests, want %v", stage, step, got, want)
			}
			if step > 10*time.Second && points > maxSums {
				t.Errorf("%s: %d points in one step", stage, points)
			}
		}
	}
	must(t, s.Sync())
	check("in the log")
	must(t, s.Close())
	check("in files")
}

// Windows are found by their range also where they go on into another day, and days
// outside of it are not read.
func TestObservationsOfARange(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	midnight := noon.Add(12 * time.Hour)
	for _, start := range []time.Time{noon, midnight.Add(-30 * time.Second), midnight.Add(30 * time.Second)} {
		must(t, s.AddObservation(&observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: start, Seconds: 60}}, nil))
	}
	must(t, s.Close())
	other := filepath.Join(dir, "observations", "2026-11-20")
	must(t, os.WriteFile(other, nil, 0o600)) // reading it as a folder fails
	r, err := OpenReader(dir)
	must(t, err)
	for _, x := range []struct {
		from, to time.Time
		want     int
	}{
		{time.Time{}, time.Time{}, 3}, {noon, time.Time{}, 3}, {midnight, time.Time{}, 2}, {midnight.Add(10 * time.Second), midnight.Add(20 * time.Second), 1},
		{time.Time{}, midnight, 2}, {midnight.Add(40 * time.Second), midnight.Add(time.Minute), 1}, {midnight.Add(2 * time.Hour), time.Time{}, 0},
		{noon.Add(time.Hour), noon.Add(2 * time.Hour), 0},
	} {
		if list, err := r.Observations(x.from, x.to); err != nil || len(list) != x.want {
			t.Errorf("%v to %v: %v, %v, want %d", x.from, x.to, list, err, x.want)
		}
	}
}

// Where all take the same time the slowest are the first ones, and not all of them
// are held to find that out.
func TestSlowestOfEqualOnes(t *testing.T) {
	c := &clock{t: noon}
	s := openAt(t, t.TempDir(), Options{}, c)
	for i := range 5000 {
		r := numbered(i)
		r.Ledger = observe.Ledger{observe.Server: 7_000_000}
		s.AddRequest(&r)
	}
	must(t, s.Close())
	r, err := OpenReader(s.dir)
	must(t, err)
	list, err := r.Slowest(Query{}, 3)
	if must(t, err); len(list) != 3 || cap(list) > 3000 {
		t.Fatalf("%d requests in memory for %d", len(list), cap(list))
	}
	for i := range list {
		if list[i].StartNS != stored(numbered(i)).StartNS {
			t.Errorf("number %d is %+v", i, list[i].StartNS)
		}
	}
}
