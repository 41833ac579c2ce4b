package web

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
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
	if st.Shipping != nil {
		t.Errorf("nothing is sent, and the status tells of %+v", st.Shipping)
	}
	if st := ask[statusJSON](t, serve(t, &memory{}, Options{}), "/api/status"); st.Span != nil || st.Stats != nil {
		t.Errorf("without history: %+v", st)
	}
}

// A clock that was ahead for a moment, as on a host that had not asked for the time
// yet, does not leave the page in the future.
func TestHistoryOfTheFuture(t *testing.T) {
	m := incident()
	m.to = noon.AddDate(70, 0, 0)
	h := serve(t, m, Options{Now: func() time.Time { return noon.Add(12 * time.Minute) }})
	if st := ask[statusJSON](t, h, "/api/status"); st.Span.To > st.Now+10 {
		t.Errorf("%+v", st.Span)
	}
	if a := ask[struct{ Endpoints []struct{ Requests uint64 } }](t, h, "/api/endpoints"); len(a.Endpoints) != 1 || a.Endpoints[0].Requests == 0 {
		t.Errorf("%+v", a)
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
			t.Errorf("%s takes no time and is reported", part)
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
	// A request leaves a record at each end that is on this host.
	calls := &memory{from: m.from, to: m.to, reqs: slices.Clone(m.reqs)}
	for i := range 5 {
		c := m.reqs[i]
		c.Side, c.Local, c.Peer, c.Process.Comm = observe.Called, c.Peer, c.Local, "curl"
		calls.reqs = append(calls.reqs, c)
	}
	sides, all := serve(t, calls, Options{}), uint64(ask[answer](t, h, "/api/requests").Total)
	for target, want := range map[string]uint64{"": all + 5, "&side=served": all, "&side=called": 5, "&side=called&ep=served%7C4026531840%7C10.0.0.5%7C80%7Cnginx": 0, "&side=called&status=ok": 5} {
		if a := ask[answer](t, sides, "/api/requests?limit=1000"+target); uint64(a.Total) != want || len(a.Requests) != int(min(want, 1000)) {
			t.Errorf("%s: %d requests, want %d", target, a.Total, want)
		}
	}
	// Of more than are looked at one by one the store knows the slowest and the latest.
	many := &manyRequests{memory: m}
	for _, sort := range []string{"slow", "time"} {
		target := "/api/requests?limit=5&slow_us=1000&sort=" + sort
		few, lots := ask[answer](t, h, target), ask[answer](t, serve(t, many, Options{}), target)
		if !slices.Equal(few.Requests, lots.Requests) || len(lots.Requests) != 5 {
			t.Errorf("%s: %+v, of many %+v", sort, few.Requests, lots.Requests)
		}
	}
	if many.scanned > 200 {
		t.Errorf("%d requests were looked at for ten", many.scanned)
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

// manyRequests says that it has more requests than it has, and counts those that
// are looked at.
type manyRequests struct {
	*memory
	scanned int
}

func (m *manyRequests) Totals(store.Query) (*observe.Histogram, error) {
	h := &observe.Histogram{}
	h.AddN(1, maxScan+1)
	return h, nil
}

func (m *manyRequests) Requests(q store.Query, f func(*store.Request) bool) error {
	return m.memory.Requests(q, func(r *store.Request) bool { m.scanned++; return f(r) })
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
	loss := a.Findings[1] // for two minutes, which is more than nine tenths of one
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
	for i, want := range map[int]bool{0: false, 2: true} { // of disk-full the first is over
		if f := a.Findings[i]; f.Cause != "disk-full" || f.Windows != 1 || (f.End != nil) != want {
			t.Errorf("%d: %+v", i, f)
		}
	}
}

// TestFindingsGoOnWhereThereIsTraffic: of an endpoint that answers nothing any more nobody knows.
func TestFindingsGoOnWhereThereIsTraffic(t *testing.T) {
	for name, c := range map[string]struct {
		ended time.Duration // before the newest second of the history
		quiet bool
	}{"answers": {0, false}, "a pause": {10 * time.Second, false}, "no traffic any more": {40 * time.Second, true}} {
		m := &memory{}
		end := noon.Add(2*time.Minute + 30*time.Second)
		for at := noon; !at.After(end); at = at.Add(time.Second) {
			if !at.After(end.Add(-c.ended)) {
				m.add(at, nil)
			}
			m.add(at, func(r *store.Request) { r.Local = netip.MustParseAddrPort("10.0.0.5:81") })
		}
		m.window(t, noon, 60, nil)
		m.window(t, noon.Add(time.Minute), 60, nil)
		m.finding(noon.Add(time.Minute), "network-loss", 0.9, cause.Subject{Kind: "listener", NetNS: 4026531840, Port: 80, Comm: "nginx"})
		a := ask[struct{ Findings []findingJSON }](t, serve(t, m, Options{Now: func() time.Time { return end }}), "/api/findings?from="+unixText(noon)+"&to="+unixText(end))
		if len(a.Findings) != 1 || a.Findings[0].End != nil {
			t.Fatalf("%s: %+v", name, a.Findings)
		}
		if q := a.Findings[0].Quiet; (q != nil) != c.quiet || q != nil && *q != unix(end.Add(-c.ended)) {
			t.Errorf("%s: quiet %v", name, q)
		}
	}
}

// TestAnswersCountWhoeverSendsThem: until it is known whose a port is, its requests are those of nobody.
func TestAnswersCountWhoeverSendsThem(t *testing.T) {
	m := &memory{}
	end := noon.Add(150 * time.Second)
	for at := noon; !at.After(end); at = at.Add(time.Second) {
		m.add(at, func(r *store.Request) {
			if at.Before(noon.Add(30 * time.Second)) {
				r.Process.Comm = ""
			}
		})
	}
	m.window(t, noon.Add(time.Minute), 60, nil)
	m.finding(noon.Add(time.Minute), "network-loss", 0.9, cause.Subject{Kind: "listener", NetNS: 4026531840, Port: 80, Comm: "nginx"})
	f := ask[struct{ Findings []findingJSON }](t, serve(t, m, Options{Now: func() time.Time { return end }}), "/api/findings?from="+unixText(noon)+"&to="+unixText(end)).Findings[0]
	if f.Quiet != nil {
		t.Errorf("no answers since %v, and it answers until %v", *f.Quiet, unix(end))
	}
	if f.Key == nil || !strings.HasSuffix(*f.Key, "|nginx") {
		t.Errorf("it is about %v: want the one with most requests", *f.Key)
	}
}

// TestFindingsOfOneFaultAreFolded: the window in which a service began has not what tells the cause.
func TestFindingsOfOneFaultAreFolded(t *testing.T) {
	m := incident()
	for i := range 4 {
		m.window(t, noon.Add(time.Duration(i)*time.Minute), 60, nil)
	}
	at := cause.Subject{NetNS: 4026531840, Port: 3306}
	m.finding(noon.Add(time.Minute), "slow-dependency", 0.9, at)
	into := 40.0
	m.found[0].Asked = &into
	m.finding(noon.Add(2*time.Minute), "mariadb-lock-wait", 0.9, at)
	a := ask[struct{ Findings []findingJSON }](t, serve(t, m, Options{}), "/api/findings?from="+unixText(noon)+"&to="+unixText(noon.Add(4*time.Minute)))
	if len(a.Findings) != 2 || a.Findings[0].Cause != "mariadb-lock-wait" || a.Findings[1].Role != cause.RoleConsequence || *a.Findings[1].ConsequenceOf != "mariadb-lock-wait" {
		t.Fatalf("%+v", a.Findings)
	}
	if f := a.Findings[0]; f.Before || f.Onset != unix(noon.Add(100*time.Second)) {
		t.Errorf("onset %v, before %v: want that of what follows from it", f.Onset, f.Before)
	}
}

// TestFindingsAreRankedAsInEveryReport: by weight and cost, not by the share of a
// service that hardly anybody calls.
func TestFindingsAreRankedAsInEveryReport(t *testing.T) {
	m := incident()
	m.window(t, noon, 60, nil)
	for _, f := range []struct {
		id          string
		share, cost float64
	}{{"slow-dependency", 1, 0.365}, {"lock-convoy", 0.79, 87}, {"accept-queue-overflow", 0.9, 1}} {
		m.finding(noon, f.id, f.share, cause.Subject{Kind: "process", PID: 7})
		m.found[len(m.found)-1].Impact.Cost = &f.cost
	}
	a := ask[struct{ Findings []findingJSON }](t, serve(t, m, Options{}), "/api/findings?from="+unixText(noon)+"&to="+unixText(noon.Add(time.Minute)))
	var got []string
	for _, f := range a.Findings {
		got = append(got, string(f.Cause))
	}
	if want := []string{"lock-convoy", "accept-queue-overflow", "slow-dependency"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestFindingsThatGoOnComeFirst: at 3 a.m. nobody cares most about what is over.
func TestFindingsThatGoOnComeFirst(t *testing.T) {
	m := incident()
	at := noon.Add(8 * time.Minute)
	m.window(t, at, 60, nil)
	m.window(t, at.Add(time.Minute), 60, nil)
	for i, id := range []string{"lock-convoy", "slow-dependency"} {
		cost := float64(100 - 90*i)
		m.finding(at.Add(time.Duration(i)*time.Minute), id, 0.9, cause.Subject{Kind: "process", PID: 7})
		m.found[i].Impact.Cost = &cost
	}
	a := ask[struct{ Findings []findingJSON }](t, serve(t, m, Options{}), "/api/findings?from="+unixText(noon)+"&to="+unixText(noon.Add(10*time.Minute))).Findings
	if len(a) != 2 || a[0].End != nil || a[0].Cause != "slow-dependency" || a[1].End == nil {
		t.Errorf("%+v", a)
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
