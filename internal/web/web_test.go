package web

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// serve is a handler over a source, with a clock that stands still.
func serve(t testing.TB, src Source, opt Options) http.Handler {
	t.Helper()
	if opt.Now == nil {
		opt.Now = func() time.Time { return noon.Add(time.Hour) }
	}
	h, err := New(src, opt)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(t testing.TB, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// ask reads an answer into a value, which must be a good one.
func ask[T any](t testing.TB, h http.Handler, target string) T {
	t.Helper()
	w := get(t, h, target)
	var v T
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("%s: Cache-Control %q", target, got)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%s: %v in %.300s", target, err, w.Body)
	}
	return v
}

func near(got, want, within float64) bool { return math.Abs(got-want) <= within*math.Abs(want) }

func TestStatus(t *testing.T) {
	h := serve(t, incident(), Options{Version: "1.2", Recording: true,
		Stats: func() (store.Stats, float64) { return store.Stats{Requests: 7, Dropped: 3}, 0.004 }})
	st := ask[statusJSON](t, h, "/api/status")
	if st.Version != "1.2" || !st.Recording || st.Span.From != float64(noon.Unix()) || st.Stats.Requests != 7 || st.Stats.CostCPUShare != 0.004 {
		t.Errorf("%+v %+v", st, st.Stats)
	}
	if len(st.Losses) != 1 || st.Losses[0].Count != 3 {
		t.Errorf("losses %+v", st.Losses)
	}
	if st := ask[statusJSON](t, serve(t, &memory{}, Options{}), "/api/status"); st.Span != nil || st.Stats != nil {
		t.Errorf("without history: %+v", st)
	}
}

func TestEndpoints(t *testing.T) {
	h := serve(t, incident(), Options{})
	a := ask[struct {
		Endpoints []struct {
			Key      string
			Requests uint64
			RPS      float64
			Errors   uint64
			Process  struct{ Comm, Unit string }
			Total    struct{ P50, P99, Max float64 }          `json:"total_us"`
			Ledger   map[string]struct{ Mean, Share float64 } `json:"ledger_us"`
		}
	}](t, h, "/api/endpoints?"+incidentRange())
	if len(a.Endpoints) != 1 {
		t.Fatalf("%+v", a)
	}
	e := a.Endpoints[0]
	// 120 s of 4 a second; a quarter takes 40 ms on the network, the others 0.2.
	if e.Key != "served|4026531840|10.0.0.5|80|nginx" || e.Requests != 480 || e.RPS != 4 || e.Errors != 48 || e.Process.Comm != "nginx" || e.Process.Unit != "nginx.service" {
		t.Errorf("%+v", e)
	}
	if !near(e.Total.P99, 41_030, 0.02) || !near(e.Total.P50, 1_250, 0.05) || !near(e.Ledger["network"].Mean, 10_150, 0.001) {
		t.Errorf("%+v", e)
	}
}

func TestSeries(t *testing.T) {
	h := serve(t, incident(), Options{})
	type answer struct {
		Step   int64
		T      []float64
		Series []struct {
			Key    string
			RPS    []*float64
			Errors []*float64
			P99    []*float64            `json:"p99_us"`
			Ledger map[string][]*float64 `json:"ledger_us"`
		}
	}
	a := ask[answer](t, h, "/api/series?points=12&from="+unixText(noon)+"&to="+unixText(noon.Add(12*time.Minute)))
	if a.Step < 60 || len(a.T) > 13 || len(a.Series) != 1 {
		t.Fatalf("step %d, %d points, %d series", a.Step, len(a.T), len(a.Series))
	}
	s := a.Series[0]
	for i, at := range a.T {
		bad := at >= float64(noon.Add(5*time.Minute).Unix()) && at < float64(noon.Add(7*time.Minute).Unix())
		if s.RPS[i] == nil || !near(*s.RPS[i], 4, 0.02) {
			t.Errorf("%d: %v requests a second", i, s.RPS[i])
			continue
		}
		if got := *s.Ledger["network"][i] > 5000; got != bad {
			t.Errorf("%d: network %g", i, *s.Ledger["network"][i])
		}
		if got := *s.Errors[i] > 0; got != bad {
			t.Errorf("%d: errors %g", i, *s.Errors[i])
		}
	}
	for _, part := range []string{"stall", "retrans"} {
		if _, ok := s.Ledger[part]; ok {
			t.Errorf("%s takes no time and is told", part)
		}
	}
	// Before there was any history there is nothing, which is not zero.
	if b := ask[answer](t, h, "/api/series?from="+unixText(noon.Add(-time.Hour))+"&to="+unixText(noon.Add(time.Minute))); b.Series[0].RPS[0] != nil {
		t.Errorf("%v requests a second before the beginning", *b.Series[0].RPS[0])
	}
	if c := ask[answer](t, h, "/api/series?ep=served%7C1%7C10.0.0.5%7C80%7Cnginx"); len(c.Series) != 0 {
		t.Errorf("another namespace's endpoint: %+v", c)
	}
	csv := get(t, h, "/api/series?format=csv&"+incidentRange())
	if csv.Header().Get("Content-Type") != typeCSV || !strings.HasPrefix(csv.Body.String(), "time,endpoint,rps,") || strings.Count(csv.Body.String(), "\n") < 100 {
		t.Errorf("%s: %.200s", csv.Header().Get("Content-Type"), csv.Body)
	}
}

func unixText(t time.Time) string { return t.Format(time.RFC3339) }

func TestRequests(t *testing.T) {
	m := incident()
	h := serve(t, m, Options{})
	type answer struct {
		Total    uint64 `json:"total_matching"`
		Requests []struct {
			ID     string
			Total  float64 `json:"total_us"`
			Start  string
			Peer   string `json:"peer_addr"`
			Status string
			HTTP   int `json:"http_status"`
		}
	}
	slow := ask[answer](t, h, "/api/requests?slow_us=10000&limit=5")
	if slow.Total != 120 || len(slow.Requests) != 5 {
		t.Fatalf("%d of %d", len(slow.Requests), slow.Total)
	}
	for i, r := range slow.Requests {
		if r.Total < 40_000 || r.Peer != "10.0.1.3" || i > 0 && r.Total > slow.Requests[i-1].Total {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if a := ask[answer](t, h, "/api/requests?status=5xx&limit=1000"); a.Total != 48 || a.Requests[0].HTTP != 503 {
		t.Errorf("%d failed", a.Total)
	}
	latest := ask[answer](t, h, "/api/requests?sort=time&limit=3")
	if len(latest.Requests) != 3 || latest.Requests[0].Start < latest.Requests[2].Start {
		t.Errorf("%+v", latest)
	}
	one := ask[struct {
		Request struct {
			ID    string
			Total float64 `json:"total_us"`
		}
		Wait    any
		Because map[string]string
	}](t, h, "/api/request?id="+url.QueryEscape(slow.Requests[0].ID))
	if one.Request.ID != slow.Requests[0].ID || one.Request.Total != slow.Requests[0].Total || one.Wait != nil || one.Because["wait"] == "" {
		t.Errorf("%+v", one)
	}
	if w := get(t, h, "/api/request?id=1_s_1_1.2.3.4:5_1.2.3.4:6_7"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown request: %d", w.Code)
	}
	csv := get(t, h, "/api/requests?format=csv&limit=7").Body.String()
	if strings.Count(csv, "\r\n") != 8 {
		t.Errorf("%s", csv)
	}
}

func TestFindingsAreJoined(t *testing.T) {
	m := incident()
	web := cause.Subject{Kind: "listener", NetNS: 4026531840, Port: 80, PID: 1, Comm: "nginx"}
	again := web
	again.PID = 2 // started anew
	for i := range 10 {
		at := noon.Add(time.Duration(i) * time.Minute)
		m.window(t, at, 60, nil)
		if i >= 5 && i < 7 {
			s := web
			if i == 6 {
				s = again
			}
			m.finding(at, "network-loss", 0.1*float64(i), s)
		}
		if i == 1 || i == 9 {
			m.finding(at, "disk-full", 0.9, cause.Subject{Kind: "host"})
		}
	}
	a := ask[struct {
		Findings []findingJSON
		RuledOut []any `json:"ruled_out"`
	}](t, serve(t, m, Options{}), "/api/findings?from="+unixText(noon)+"&to="+unixText(noon.Add(10*time.Minute)))
	if len(a.Findings) != 3 || len(a.RuledOut) == 0 {
		t.Fatalf("%d findings, %d ruled out", len(a.Findings), len(a.RuledOut))
	}
	loss := a.Findings[2]
	if loss.Cause != "network-loss" || loss.Windows != 2 || loss.Onset != unix(noon.Add(5*time.Minute)) || loss.End == nil || *loss.End != unix(noon.Add(7*time.Minute)) || loss.Share < 0.59 {
		t.Errorf("%+v", loss)
	}
	if loss.Key == nil || *loss.Key != "served|4026531840|10.0.0.5|80|nginx" {
		t.Errorf("key %v", loss.Key)
	}
	part := ask[struct{ Findings []findingJSON }](t, serve(t, m, Options{}), "/api/findings?from="+unixText(noon.Add(6*time.Minute+10*time.Second))+"&to="+unixText(noon.Add(6*time.Minute+20*time.Second)))
	if len(part.Findings) != 1 || part.Findings[0].Onset != loss.Onset || part.Findings[0].End == nil || *part.Findings[0].End != *loss.End {
		t.Errorf("of ten seconds: %+v", part.Findings)
	}
	for i, want := range []bool{true, false} { // of disk-full the first is over
		if f := a.Findings[i]; f.Cause != "disk-full" || f.Windows != 1 || (f.End != nil) != want {
			t.Errorf("%d: %+v", i, f)
		}
	}
}

func TestHistogram(t *testing.T) {
	a := ask[struct {
		Buckets []bucketJSON
		Count   uint64
		Heat    struct {
			T      []float64
			US     []float64
			Counts [][]uint64
		}
	}](t, serve(t, incident(), Options{}), "/api/histogram?from="+unixText(noon)+"&to="+unixText(noon.Add(12*time.Minute)))
	var n, slow uint64
	for i, b := range a.Buckets {
		n += b.Count
		if b.To <= b.From || i > 0 && b.From != a.Buckets[i-1].To {
			t.Errorf("bucket %+v after %+v", b, a.Buckets[max(i-1, 0)])
		}
		if b.From > 10_000 {
			slow += b.Count
		}
	}
	if n != 2880 || a.Count != 2880 || slow != 120 {
		t.Errorf("%d requests in buckets, %d slow", n, slow)
	}
	n = 0
	for _, column := range a.Heat.Counts {
		if len(column) != len(a.Heat.US) {
			t.Fatalf("%d rows, %d bounds", len(column), len(a.Heat.US))
		}
		for _, c := range column {
			n += c
		}
	}
	if n != 2880 || len(a.Heat.Counts) != len(a.Heat.T) {
		t.Errorf("%d requests in the heat map, %d columns, %d times", n, len(a.Heat.Counts), len(a.Heat.T))
	}
}

func TestEmptyHistory(t *testing.T) {
	h := serve(t, &memory{}, Options{})
	for _, path := range []string{"endpoints", "series", "findings", "requests", "difference", "histogram", "waits", "stacks", "drops", "proofs", "status"} {
		var v map[string]any
		w := get(t, h, "/api/"+path)
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if _, ok := v["losses"].([]any); !ok {
			t.Errorf("%s: losses %v", path, v["losses"])
		}
	}
	for _, path := range []string{"/api/report", "/flame", "/flame.svg"} {
		if w := get(t, h, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestStacks(t *testing.T) {
	m := incident()
	busy := func(hot uint64) func(*observe.Observation) {
		return func(o *observe.Observation) {
			f := func(name string, own uint64) observe.ProfileFunction {
				return observe.ProfileFunction{Frame: observe.Frame{Name: name, Kind: observe.FramePHP}, Self: own, Total: own, Own: own}
			}
			o.Profile = &observe.Profile{Hz: 100, Samples: 1000 + hot, Processes: []observe.ProfileProcess{{PID: 4711, Comm: "nginx", Samples: 1000 + hot,
				Functions: []observe.ProfileFunction{f("render", hot), f("parse", 500)}}}}
		}
	}
	m.window(t, noon.Add(time.Minute), 60, busy(100))
	m.window(t, noon.Add(5*time.Minute), 60, busy(5000))
	h := serve(t, m, Options{})
	a := ask[stacksJSON](t, h, "/api/stacks?"+incidentRange()+"&against_from="+unixText(noon)+"&against_to="+unixText(noon.Add(5*time.Minute)))
	if a.Frames == nil || a.Frames.Value != 60e9 || *a.Frames.Before != 11e9 || !a.Compares {
		t.Fatalf("%+v", a.Frames)
	}
	nginx := a.Frames.Children[0]
	if nginx.Name != "nginx" || nginx.Kind != "process" || nginx.Children[0].Name != "render" || nginx.Children[0].Value != 50e9 || *nginx.Children[0].Before != 1e9 {
		t.Errorf("%+v", nginx)
	}
	if off := ask[stacksJSON](t, h, "/api/stacks?kind=off&"+incidentRange()); off.Frames != nil || off.Because == nil {
		t.Errorf("%+v", off)
	}
	page := get(t, h, "/flame?"+incidentRange())
	if page.Code != 200 || !strings.Contains(page.Body.String(), "render") || !strings.Contains(page.Header().Get("Content-Security-Policy"), "script-src 'sha256-") {
		t.Errorf("%d %v", page.Code, page.Header())
	}
	picture := get(t, h, "/flame.svg?"+incidentRange())
	if picture.Code != 200 || !bytes.HasPrefix(picture.Body.Bytes(), []byte("<svg")) || picture.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("%d %v %.100s", picture.Code, picture.Header(), picture.Body)
	}
	d := ask[struct{ Rows []differenceRow }](t, h, "/api/difference?"+incidentRange())
	if !anyRow(d.Rows, func(r *differenceRow) bool {
		return r.Dimension == byStack && strings.HasPrefix(r.Name, "render in nginx") && r.Inside > 5*r.Outside
	}) {
		t.Errorf("no row of the function: %+v", d.Rows)
	}
}

// Whole stacks of a part of a window stand for all that their process computed in
// it; other processes are shown by their functions.
func TestWholeStacks(t *testing.T) {
	m := incident()
	for i := range 2 {
		m.window(t, noon.Add(time.Duration(5+i)*time.Minute), 60, func(o *observe.Observation) {
			o.Profile = &observe.Profile{Hz: 100, Samples: 3000, Processes: []observe.ProfileProcess{{PID: 4711, Comm: "nginx", Samples: 2000}, {PID: 1, Comm: "other", Samples: 1000,
				Functions: []observe.ProfileFunction{{Frame: observe.Frame{Name: "spin", Kind: observe.FrameNative}, Self: 900, Total: 900, Own: 900}}}}}
			if i == 1 {
				return
			}
			o.Stacks = &observe.Stacks{Hz: 97, WindowNS: 4e9, Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
				Frames: []observe.Frame{{Name: "handle", Kind: observe.FramePython}, {Name: "render", Kind: observe.FramePython}, {Name: "query", Kind: observe.FramePython}},
				Samples: []observe.StackSample{{PID: 4711, Comm: "nginx", Frames: []int32{1, 0}, Values: []int64{75, 75e7}}, {PID: 4711, Comm: "nginx", Frames: []int32{2, 0}, Values: []int64{25, 25e7}},
					{PID: 4711, Comm: "nginx", Frames: []int32{99, -1}, Values: []int64{0, 0}}}}
		})
	}
	h := serve(t, m, Options{})
	a := ask[stacksJSON](t, h, "/api/stacks?"+incidentRange())
	if a.Frames == nil || a.Frames.Value != 30e9 || len(a.Frames.Children) != 2 || a.Window != 60 || len(a.Notes) < 2 {
		t.Fatalf("%+v %v", a.Frames, a)
	}
	handle := a.Frames.Children[0].Children[0]
	if handle.Name != "handle" || handle.Value != 20e9 || len(handle.Children) != 2 || handle.Children[0].Name != "render" || handle.Children[0].Value != 15e9 || handle.Children[0].Self != 15e9 {
		t.Errorf("%+v", handle)
	}
	if other := a.Frames.Children[1]; other.Name != "other" || other.Value != 10e9 || other.Children[0].Name != "spin" || other.Children[0].Value != 9e9 {
		t.Errorf("%+v", other)
	}
	r := ask[struct{ Stacks *frameJSON }](t, h, "/api/request?id="+url.QueryEscape(requestID(&m.reqs[4*310])))
	if r.Stacks == nil || len(r.Stacks.Children) != 1 || r.Stacks.Children[0].Children[0].Name != "handle" {
		t.Errorf("%+v", r.Stacks)
	}
}

func TestPage(t *testing.T) {
	h := serve(t, incident(), Options{})
	w := get(t, h, "/")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "<html") || w.Header().Get("ETag") == "" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	h.ServeHTTP(again, r)
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("asked again: %d", again.Code)
	}
	r = httptest.NewRequest(http.MethodGet, "/api/requests?limit=500", nil)
	r.Header.Set("Accept-Encoding", "br, gzip;q=1.0")
	packed := httptest.NewRecorder()
	h.ServeHTTP(packed, r)
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() > 40_000 {
		t.Errorf("%v, %d bytes", packed.Header(), packed.Body.Len())
	}
	io.Copy(io.Discard, packed.Body)
}

func anyRow(rows []differenceRow, f func(*differenceRow) bool) bool {
	for i := range rows {
		if f(&rows[i]) {
			return true
		}
	}
	return false
}
