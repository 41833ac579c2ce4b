package answer

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// reads notes from when on points of ten seconds are read, and fails when told to.
type reads struct {
	*world
	from []int64 // s since it began
	fail error
}

func (r *reads) Points(ctx context.Context, q fleet.Question, step time.Duration, f func(*fleet.Point) bool) error {
	if step == 10*time.Second && q.Host == "" {
		r.from = append(r.from, q.From.Unix()-began)
		if r.fail != nil {
			return r.fail
		}
	}
	return r.world.Points(ctx, q, step, f)
}

// TestLookGoesOn: of a large fleet, what was judged is not judged again.
func TestLookGoesOn(t *testing.T) {
	before := mostPoints
	defer func() { mostPoints = before }()
	mostPoints = 1000
	w := newWorld(4)
	w.db = step(1205, 45*time.Millisecond)
	w.run(1500)
	a := &reads{world: w}
	l := NewLooker(a)
	look := func(l *Looker, from, to int64) *View {
		t.Helper()
		v, err := l.Look(t.Context(), Question{From: moment(from), To: moment(to)})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	look(l, 900, 1203)
	for _, to := range []int64{1247, 1251, 1400} {
		a.from = nil
		got := look(l, to-303, to)
		if len(a.from) != 1 || a.from[0] < 1200 || a.from[0] > 1250 {
			t.Errorf("to %d: read from %v on", to, a.from)
		}
		want := look(NewLooker(w), to-303, to)
		if len(got.Report.Causes) != 1 || len(want.Report.Causes) != 1 {
			t.Fatalf("to %d: causes %+v, want %+v", to, got.Report.Causes, want.Report.Causes)
		}
		x, y := got.Report.Causes[0], want.Report.Causes[0]
		if x.Component != y.Component || x.Since.Sub(y.Since).Abs() > 10*time.Second || len(x.Affected) != len(y.Affected) || got.Report.Fleet != want.Report.Fleet {
			t.Errorf("to %d: %s\n%+v\nwant\n%s\n%+v", to, textOf(t, got.Report), got.Report.Fleet, textOf(t, want.Report), want.Report.Fleet)
		}
		if len(got.Map.Edges) != 8 || got.Map.Edges[0].Caller.Rate <= 0 || len(got.Table.Services) != 3 || len(got.Hosts) != 5 {
			t.Errorf("to %d: %d edges, %d services, %d hosts", to, len(got.Map.Edges), len(got.Table.Services), len(got.Hosts))
		}
	}
	// What came halfway is not gone on from, and what is before is judged by itself.
	a.from, a.fail = nil, errors.New("connection refused")
	if _, err := l.Look(t.Context(), Question{From: moment(1150), To: moment(1450)}); !errors.Is(err, a.fail) {
		t.Errorf("error %v", err)
	}
	a.from, a.fail = nil, nil
	if look(l, 1150, 1450); len(a.from) != 1 || a.from[0] != 250 {
		t.Errorf("after an error: read from %v on", a.from)
	}
	if v := look(l, 900, 1100); len(v.Report.Causes) != 0 || len(a.from) != 2 || a.from[1] != 0 {
		t.Errorf("before: %d causes, read from %v on", len(v.Report.Causes), a.from)
	}
	a.from = nil
	if look(l, 1160, 1460); len(a.from) != 1 || a.from[0] != 1450 {
		t.Errorf("on again: read from %v on", a.from)
	}
}

// TestYoungFleet: rates of a range in which a fleet began are those of its time, not of the
// time before it.
func TestYoungFleet(t *testing.T) {
	w := newWorld(4)
	w.run(300)
	rate := func(from int64) float64 {
		t.Helper()
		v, err := NewLooker(w).Look(t.Context(), Question{From: moment(from), To: moment(300)})
		if err != nil || len(v.Table.Services) == 0 || len(v.Map.Served) == 0 {
			t.Fatalf("%+v, %v", v, err)
		}
		sum := 0.0
		for _, s := range v.Map.Served {
			sum += s.Rate
		}
		var table float64
		for _, s := range v.Table.Services {
			table += s.Rate
		}
		if math.Abs(sum-table) > table/50 {
			t.Errorf("%.1f requests a second by the map, %.1f by the table", sum, table)
		}
		return table
	}
	whole, young := rate(0), rate(-600)
	if math.Abs(young-whole) > whole/50 {
		t.Errorf("%.1f requests a second of a range that begins before the fleet, %.1f of its own time", young, whole)
	}
}
