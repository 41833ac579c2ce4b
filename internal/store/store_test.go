package store

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/shell"
)

// noon is when the tests happen.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}

// openAt opens a writer that does nothing by itself.
func openAt(t testing.TB, dir string, opt Options, c *clock) *Store {
	t.Helper()
	s, err := open(dir, opt, c.now)
	if err != nil {
		t.Fatal(err)
	}
	s.elapsed = func() time.Duration { return c.now().Sub(s.opened) }
	return s
}

// homeAt is a directory, held open until the test ends.
func homeAt(t testing.TB, dir string) *safefile.Dir {
	t.Helper()
	d, err := safefile.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// segmentsIn lists the Parquet files of a kind by their whole paths.
func segmentsIn(t testing.TB, dir string, k kind) ([]segment, error) {
	t.Helper()
	list, _, err := segments(homeAt(t, dir).Root, k)
	for i := range list {
		list[i].path = filepath.Join(dir, list[i].path)
	}
	return list, err
}

// logsIn lists the logs by their whole paths.
func logsIn(t testing.TB, dir string) ([]openLog, error) {
	t.Helper()
	list, err := openLogs(homeAt(t, dir).Root)
	for i := range list {
		list[i].path = filepath.Join(dir, list[i].path)
	}
	return list, err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readAll(t testing.TB, dir string, q Query) []Request {
	t.Helper()
	r, err := OpenReader(dir)
	must(t, err)
	var list []Request
	must(t, r.Requests(q, func(req *Request) bool {
		list = append(list, *req)
		return true
	}))
	for _, s := range r.Skipped() {
		t.Errorf("skipped: %s", s)
	}
	return list
}

// stored is a request as the store gives it back: times in microseconds.
func stored(r Request) Request {
	r.StartNS = floorMicros(r.StartNS) * 1000
	ledger, split := microLedger(&r)
	for p := range ledger {
		r.Ledger[p] = ledger[p] * 1000
	}
	for p := range split {
		r.Split[p] = split[p] * 1000
	}
	r.RTTNS, r.MinRTTNS, r.FirstByte = micros(r.RTTNS)*1000, micros(r.MinRTTNS)*1000, micros(r.FirstByte)*1000
	return r
}

var comparers = gocmp.Options{
	gocmp.Comparer(func(a, b observe.Histogram) bool {
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		return string(x) == string(y)
	}),
	cmpopts.EquateComparable(Request{}.Local, Request{}.Request, Request{}.Process),
	cmpopts.IgnoreUnexported(cause.Finding{}),
}

func sameRequests(t testing.TB, got, want []Request) {
	t.Helper()
	byStart := func(a, b Request) int {
		return cmp.Or(cmp.Compare(a.StartNS, b.StartNS), a.Peer.Compare(b.Peer), cmp.Compare(a.TotalNS(), b.TotalNS()), cmp.Compare(a.PID, b.PID))
	}
	if !slices.IsSortedFunc(got, func(a, b Request) int { return cmp.Compare(a.StartNS, b.StartNS) }) {
		t.Error("requests are not in order of their start")
	}
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortFunc(got, byStart)
	slices.SortFunc(want, byStart)
	if len(got) != len(want) {
		t.Fatalf("%d requests, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("request %d of %d: %s", i, len(want), gocmp.Diff(want[i], got[i], comparers))
		}
	}
}

// What is added is read back at each stage: from the log, from Parquet files,
// from both.
func TestReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	tr := newTraffic(1)
	var want []Request
	var seconds []Second
	check := func(stage string) {
		t.Helper()
		t.Log(stage)
		sameRequests(t, readAll(t, dir, Query{}), want)
		r, err := OpenReader(dir)
		must(t, err)
		got, err := r.Series(Query{PartHists: true}, time.Second)
		must(t, err)
		n := 0
		for _, series := range got {
			n += len(series.Points)
			if series.Step != time.Second {
				t.Errorf("step %v, want 1 s", series.Step)
			}
		}
		if n != len(seconds) {
			t.Fatalf("%d seconds, want %d", n, len(seconds))
		}
		for _, k := range r.Skipped() {
			t.Errorf("skipped: %s", k)
		}
	}
	for sec := range 700 {
		at := noon.Add(time.Duration(sec) * time.Second)
		c.set(at.Add(time.Second))
		for range 5 {
			var r Request
			tr.next(&r, at.UnixNano()+int64(tr.rng.IntN(1e9)))
			s.AddRequest(&r)
			want = append(want, stored(r))
		}
		for svc := range 2 {
			one := tr.second(svc, at.Unix(), 3)
			s.AddSecond(&one)
			seconds = append(seconds, one)
		}
		must(t, s.Sync())
		switch sec {
		case 100:
			check("log only")
		case 350:
			check("log that is ended, and an open one")
			must(t, s.keep())
			check("file and open log")
		}
	}
	must(t, s.keep())
	check("files and open log")
	checkCounts(t, dir)
	must(t, s.Close())
	check("files only")
	logs, err := logsIn(t, dir)
	if must(t, err); len(logs) != 0 {
		t.Errorf("logs are left after Close: %v", logs)
	}
	st := s.Stats()
	if st.Requests != uint64(len(want)) || st.Seconds != uint64(len(seconds)) || st.Dropped+st.DroppedSeconds != 0 || st.LastError != "" {
		t.Errorf("stats %+v", st)
	}

	r, err := OpenReader(dir)
	must(t, err)
	from, to, err := r.Span()
	if must(t, err); !from.Equal(noon) || to.Sub(noon) < 699*time.Second || to.Sub(noon) > 701*time.Second {
		t.Errorf("span %v to %v", from, to)
	}
	checkSums(t, r, seconds)
	checkCounts(t, dir)
}

// checkCounts reads counts only, which are those of whole rows: nothing but the lists is left out.
func checkCounts(t *testing.T, dir string) {
	t.Helper()
	r, err := OpenReader(dir)
	must(t, err)
	whole, err := r.Endpoints(Query{From: noon, To: noon.Add(time.Hour)})
	must(t, err)
	counts, err := r.Endpoints(Query{From: noon, To: noon.Add(time.Hour), Counts: true})
	must(t, err)
	lists := false
	for i := range whole {
		e := &whole[i].Endpoint
		lists = lists || e.Total.Count() > 0 && len(e.Flags) > 0
		e.Flags = nil
		for _, h := range []*observe.Histogram{&e.Total, &e.RTT} {
			top := h.Max()
			*h = observe.Histogram{}
			h.RaiseMax(top)
		}
		for name, p := range e.Parts {
			top := p.Hist.Max()
			p.Hist = observe.Histogram{}
			p.Hist.RaiseMax(top)
			e.Parts[name] = p
		}
	}
	if !lists {
		t.Fatal("no row has a histogram and flags: nothing is compared")
	}
	if diff := gocmp.Diff(whole, counts, gocmp.AllowUnexported(observe.Histogram{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(observe.Histogram{}, "base", "counts")); diff != "" {
		t.Errorf("-whole rows +counts only:\n%s", diff)
	}
}

// checkSums compares sums over ranges of all widths with sums made here.
func checkSums(t *testing.T, r *Reader, seconds []Second) {
	t.Helper()
	for _, rg := range []struct{ from, to int }{{0, 700}, {0, 600}, {7, 13}, {10, 20}, {3, 691}, {299, 301}, {300, 600}, {650, 2000}} {
		from, to := noon.Add(time.Duration(rg.from)*time.Second), noon.Add(time.Duration(rg.to)*time.Second)
		want := map[int]*observe.Endpoint{}
		for i := range seconds {
			sec := &seconds[i]
			if sec.At < from.Unix() || sec.At >= to.Unix() {
				continue
			}
			e := want[sec.Endpoint.Port]
			if e == nil {
				e = &observe.Endpoint{Parts: map[string]observe.PartStats{}}
				want[sec.Endpoint.Port] = e
			}
			e.Requests += sec.Endpoint.Requests
			e.Errors += sec.Endpoint.Errors
			e.BytesOut += sec.Endpoint.BytesOut
			e.Total.Merge(&sec.Endpoint.Total)
			for name, p := range sec.Endpoint.Parts {
				x := e.Parts[name]
				x.SumNS += p.SumNS
				x.Hist.Merge(&p.Hist)
				e.Parts[name] = x
			}
		}
		got, err := r.Endpoints(Query{From: from, To: to, PartHists: true})
		must(t, err)
		if len(got) != len(want) {
			t.Fatalf("%v: %d endpoints, want %d", rg, len(got), len(want))
		}
		for _, g := range got {
			w := want[g.Endpoint.Port]
			if g.Endpoint.Requests != w.Requests || g.Endpoint.Errors != w.Errors || g.Endpoint.BytesOut != w.BytesOut {
				t.Errorf("%v port %d: %d requests, %d errors, %d bytes, want %d, %d, %d", rg, g.Endpoint.Port,
					g.Endpoint.Requests, g.Endpoint.Errors, g.Endpoint.BytesOut, w.Requests, w.Errors, w.BytesOut)
			}
			for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
				near(t, "quantile", float64(g.Endpoint.Total.Quantile(q)), float64(w.Total.Quantile(q)), 0.001, 1000)
			}
			for name, p := range w.Parts {
				near(t, name, float64(g.Endpoint.Parts[name].SumNS), float64(p.SumNS), 0.001, 1e6)
			}
			server := observe.Server.String()
			if g, w := g.Endpoint.Parts[server].Hist, w.Parts[server].Hist; g.Count() != w.Count() || !closeTo(g.Quantile(0.9), w.Quantile(0.9)) {
				t.Errorf("%v: server: %d values, p90 %d, want %d, %d", rg, g.Count(), g.Quantile(0.9), w.Count(), w.Quantile(0.9))
			}
			if rg.from%300 == 0 && rg.to == 600 {
				network := observe.Network.String()
				if g, w := g.Endpoint.Parts[network].Hist, w.Parts[network].Hist; g.Count() != w.Count() || !closeTo(g.Quantile(0.9), w.Quantile(0.9)) {
					t.Errorf("%v: network: %d values, p90 %d, want %d, %d", rg, g.Count(), g.Quantile(0.9), w.Count(), w.Quantile(0.9))
				}
			}
		}
	}
}

func near(t testing.TB, what string, got, want, share, least float64) {
	t.Helper()
	if off := max(got-want, want-got); off > max(want*share, least) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

func TestObservationsAndFindings(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	parent := cause.ID("conntrack-full")
	want := cause.Finding{
		Cause: "syn-retransmits", Title: "a \"title\"\x1b[31m with <tags>", Verdict: cause.Supported, Role: cause.RoleConsequence, ConsequenceOf: &parent,
		Subject:  cause.Subject{Kind: "listener", PID: 7, Comm: "nginx", Port: 80, Addr: "10.0.0.1", Rule: "drop"},
		Impact:   cause.Impact{Share: 0.25, Of: "new connections", Text: "a quarter"},
		Evidence: []cause.Evidence{{Fact: "full", Value: 12.0, Source: "/proc"}},
		Fix:      cause.Fix{Text: "fix", Commands: []shell.Command{shell.Line("sysctl")}}, Weight: 0.125,
	}
	minor := want
	minor.Cause, minor.Weight = "later", 0.5
	obs := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon, Seconds: 10}}
	must(t, s.AddObservation(obs, []cause.Finding{want, minor}))
	must(t, s.AddObservation(obs, nil))
	must(t, s.Sync())
	for _, stage := range []string{"log", "file"} {
		r, err := OpenReader(dir)
		must(t, err)
		windows, err := r.Observations(time.Time{}, time.Time{})
		must(t, err)
		if len(windows) != 2 || !windows[0].Start.Equal(noon) || windows[0].End.Sub(noon) != 10*time.Second {
			t.Fatalf("%s: windows %v", stage, windows)
		}
		if _, err := observe.Load(windows[1].Path); err != nil {
			t.Error(err)
		}
		got, err := r.Findings(noon.Add(5*time.Second), noon.Add(6*time.Second))
		must(t, err)
		if len(got) != 2 || got[0].Cause != "later" {
			t.Fatalf("%s: findings %v", stage, got)
		}
		if d := gocmp.Diff(want, got[1].Finding, comparers); d != "" {
			t.Errorf("%s: %s", stage, d)
		}
		if !got[1].Start.Equal(noon) || got[1].End.Sub(noon) != 10*time.Second {
			t.Errorf("%s: window %v to %v", stage, got[1].Start, got[1].End)
		}
		if got, err := r.Findings(noon.Add(time.Minute), time.Time{}); err != nil || len(got) != 0 {
			t.Errorf("%s: later findings: %v, %v", stage, got, err)
		}
		if stage == "log" {
			must(t, s.Close())
		}
	}
}

// Nobody but the owner may read what is stored.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	tr := newTraffic(1)
	var r Request
	tr.next(&r, noon.UnixNano())
	s.AddRequest(&r)
	sec := tr.second(0, noon.Unix(), 2)
	s.AddSecond(&sec)
	must(t, s.AddObservation(&observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon, Seconds: 1}}, []cause.Finding{{Cause: "x"}}))
	must(t, s.Sync())
	look := func() {
		must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: mode %v", path, info.Mode())
			}
			return err
		}))
	}
	look()
	must(t, s.Close())
	look()
}

// closeTo says whether two quantiles differ by no more than the microsecond that a
// maximum is known to.
func closeTo(a, b int64) bool { return max(a-b, b-a) <= 1000 }
