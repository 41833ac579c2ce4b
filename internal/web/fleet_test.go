package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	fleetmemory "github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

const fleetBegan = int64(1_800_007_200)

// smallFleet is a fleet of some web hosts that call a database, which is slow since 900 s
// after it began; 1,100 s of it.
func smallFleet(t *testing.T, webs int, db string) *fleetmemory.Archive {
	t.Helper()
	a := new(fleetmemory.Archive)
	hello := func(name, addr string) {
		h := &fleet.Host{Name: name, ID: name, Addresses: []string{addr}, Labels: map[string]string{"rack": "r1"}, Kernel: "6.12.1", CPUs: 4, Version: "1"}
		if err := a.Hello(context.Background(), h, time.Unix(fleetBegan+1080, 0)); err != nil {
			t.Fatal(err)
		}
	}
	hello(db, "10.0.0.7")
	second := func(host string, side observe.Side, comm, addr string, port int, s int64, n int, took time.Duration) {
		x := &store.Second{At: fleetBegan + s, Process: observe.Identity{Comm: comm}}
		e := &x.Endpoint
		e.Side, e.Addr, e.Port, e.Comm, e.Requests = side.String(), addr, port, comm, uint64(n)
		sum := int64(0)
		for i := range n {
			d := int64(took) * (80 + (s*7+int64(i)*13)%40) / 100
			e.Total.Add(d)
			sum += d
		}
		e.Parts = map[string]observe.PartStats{observe.Server.String(): {SumNS: sum}}
		a.AddSecond(host, x)
	}
	for i := range webs {
		hello(fmt.Sprintf("web-%d", i), fmt.Sprintf("10.0.1.%d", i+1))
	}
	for s := range int64(1100) {
		slow := 2 * time.Millisecond
		if s >= 900 {
			slow = 50 * time.Millisecond
		}
		second(db, observe.Served, "mariadbd", "10.0.0.7", 3306, s, 10*webs, slow)
		for i := range webs {
			name := fmt.Sprintf("web-%d", i)
			second(name, observe.Served, "app", fmt.Sprintf("10.0.1.%d", i+1), 8080, s, 10, 3*time.Millisecond+slow)
			second(name, observe.Called, "app", "10.0.0.7", 3306, s, 10, slow+100*time.Microsecond)
		}
	}
	return a
}

func fleetHandler(t *testing.T, a fleet.Archive, opt Options) http.Handler {
	t.Helper()
	opt.Now = func() time.Time { return time.Unix(fleetBegan+1103, 0) }
	h, err := NewFleet(a, opt)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func fleetGet(h http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7789"+path, nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// asks counts how often an archive is asked for its hosts, and fails when told to.
type asks struct {
	fleet.Archive
	n    int
	fail error
}

func (a *asks) Hosts(ctx context.Context) ([]fleet.HostSeen, error) {
	if a.n++; a.fail != nil {
		return nil, a.fail
	}
	return a.Archive.Hosts(ctx)
}

func TestFleetAnswer(t *testing.T) {
	evil := "db-7<img src=x>\x1b[2J\u202e"
	a := &asks{Archive: smallFleet(t, 4, evil)}
	h := fleetHandler(t, a, Options{Version: "test", Loopback: true})
	w := fleetGet(h, "/api/fleet?last=600")
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if text := w.Body.String(); strings.ContainsAny(text, "\x1b\u202e") || strings.Contains(text, `\u001b`) {
		t.Error("what drives a terminal or turns the text around is sent")
	}
	var v fleetView
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if v.To != fleetBegan+1100 || v.From != v.To-600 || v.Now != float64(fleetBegan+1103) || v.Fleet.Hosts != 5 {
		t.Errorf("%d to %d, now %v, %+v", v.From, v.To, v.Now, v.Fleet)
	}
	if len(v.Why.Causes) != 1 || !strings.Contains(v.Why.Causes[0].Text, "mariadbd:3306") {
		t.Errorf("causes %+v", v.Why.Causes)
	}
	if len(v.Map.Nodes) != 2 || len(v.Map.Links) != 1 || v.Map.Links[0].Abnormal != 4 {
		t.Errorf("map %+v", v.Map)
	}
	if len(v.Services) != 2 || v.Services[0].Abnormal == 0 || v.Services[0].P99US < 40_000 || len(v.Hosts) != 5 || v.Hosts[0].Labels["rack"] != "r1" || len(v.Hosts[0].Addresses) != 1 {
		t.Errorf("services %+v, hosts %+v", v.Services, v.Hosts)
	}
	// Who asks for the same gets the same, without the archive being asked.
	n := a.n
	if again := fleetGet(h, "/api/fleet?last=600"); again.Body.String() != w.Body.String() || a.n != n {
		t.Errorf("asked %d times, then %d", n, a.n)
	}
	if w := fleetGet(h, fmt.Sprintf("/api/fleet?from=%d&to=%d", fleetBegan+600, fleetBegan+880)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Nothing is abnormal") || a.n == n {
		t.Errorf("the time before: %d, %s", w.Code, clip(w.Body.String(), 600))
	}
	a.fail = errors.New("connection refused")
	if w := fleetGet(h, "/api/fleet"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "connection refused") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

func TestFleetOfNothing(t *testing.T) {
	h := fleetHandler(t, new(fleetmemory.Archive), Options{})
	w := fleetGet(h, "/api/fleet")
	for _, list := range []string{"causes", "nodes", "links", "services", "hosts", "alone", "not_checked"} {
		if strings.Contains(w.Body.String(), `"`+list+`":null`) || !strings.Contains(w.Body.String(), `"`+list+`":[`) {
			t.Errorf("%s is no list: %s", list, w.Body)
		}
	}
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "no host has ever shipped here") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

func TestFleetRefuses(t *testing.T) {
	a := new(fleetmemory.Archive)
	h := fleetHandler(t, a, Options{Loopback: true, Token: "0123456789abcdef"})
	with := func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdef") }
	for _, c := range []struct {
		path   string
		change func(*http.Request)
		status int
		want   string
	}{
		{"/api/fleet", func(*http.Request) {}, http.StatusUnauthorized, "a token is needed"},
		{"/", func(*http.Request) {}, http.StatusUnauthorized, "needs the token"},
		{"/assets/fleet.js", func(*http.Request) {}, http.StatusUnauthorized, "a token is needed"},
		{"/api/fleet", func(r *http.Request) { with(r); r.Host = "evil.example" }, http.StatusForbidden, "not one of my names"},
		{"/api/fleet", func(r *http.Request) { with(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden, "another site"},
		{"/api/fleet", func(r *http.Request) { with(r); r.Method = http.MethodPost }, http.StatusMethodNotAllowed, "GET and HEAD"},
		{"/api/other", with, http.StatusNotFound, "no such answer"},
		{"/index.html", with, http.StatusNotFound, "no such page"},
		{"/api/fleet?last=1", with, http.StatusBadRequest, "must be 60 to 86400"},
		{"/api/fleet?last=nan", with, http.StatusBadRequest, "must be 60 to 86400"},
		{"/api/fleet?from=2&to=1", with, http.StatusBadRequest, "end must be after"},
		{"/api/fleet?from=1&to=2", with, http.StatusBadRequest, "at least 60"},
		{"/api/fleet?from=1&to=1e6", with, http.StatusBadRequest, "at most 24 hours"},
		{"/api/fleet?from=x", with, http.StatusBadRequest, "seconds since 1970"},
		{"/api/fleet?a=" + strings.Repeat("a", maxQuery), with, http.StatusBadRequest, "longer than"},
	} {
		w := fleetGet(h, c.path, c.change)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d %q", clip(c.path, 60), w.Code, clip(w.Body.String(), 200), c.status, c.want)
		}
		if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: policy %q", c.path, policy)
		}
	}
	if w := fleetGet(h, "/", with); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "fleet.js") {
		t.Errorf("the page: %d", w.Code)
	}
	if _, err := NewFleet(nil, Options{}); err == nil {
		t.Error("no archive")
	}
	if _, err := NewFleet(a, Options{Token: "short"}); err == nil {
		t.Error("a short token")
	}
}
