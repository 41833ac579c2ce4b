package web

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// A history on disk answers as one in memory does.
func TestHistoryOnDisk(t *testing.T) {
	m := incident()
	m.window(t, noon.Add(5*time.Minute), 60, nil)
	m.finding(noon.Add(5*time.Minute), "network-loss", 0.5, cause.Subject{Kind: "listener", NetNS: 4026531840, Port: 80})
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.reqs {
		s.AddRequest(&m.reqs[i])
	}
	m.Points(store.Query{}, time.Second, func(sec *store.Second) bool { s.AddSecond(sec); return true })
	for _, w := range m.windows {
		o, err := observe.Load(w.Path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AddObservation(o, []cause.Finding{m.found[0].Finding}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	disk, memory := serve(t, r, Options{}), serve(t, m, Options{})

	type answers struct {
		Total     uint64 `json:"total_matching"`
		Count     uint64
		Endpoints []struct {
			Key      string
			Requests uint64
			Errors   uint64
			Total    struct{ P50, P99 float64 }        `json:"total_us"`
			Ledger   map[string]struct{ Mean float64 } `json:"ledger_us"` // the largest value of a part is not stored exactly
		}
		Requests []struct {
			ID    string
			Total float64 `json:"total_us"`
		}
		Findings []struct {
			Cause string
			Onset float64
			Key   *string
		}
		Series []struct {
			RPS []*float64
			P99 []*float64 `json:"p99_us"`
		}
	}
	for _, path := range []string{"endpoints", "requests", "findings", "series", "histogram"} {
		target := "/api/" + path + "?points=100&slow_us=10000&" + incidentRange()
		a, b := ask[answers](t, disk, target), ask[answers](t, memory, target)
		for i := range b.Requests { // the store keeps microseconds
			a.Requests[i].ID, b.Requests[i].ID = "", ""
		}
		if x, y := jsonText(t, a), jsonText(t, b); x != y {
			t.Errorf("%s\n%s\n%s", path, x, y)
		}
	}
	slow := ask[answers](t, disk, "/api/requests?limit=1&"+incidentRange())
	if len(slow.Requests) != 1 {
		t.Fatal("no request")
	}
	one := ask[struct{ Request struct{ ID string } }](t, disk, "/api/request?id="+url.QueryEscape(slow.Requests[0].ID))
	if one.Request.ID != slow.Requests[0].ID {
		t.Errorf("%s is found as %s", slow.Requests[0].ID, one.Request.ID)
	}
	d := ask[differenceAnswer](t, disk, "/api/difference?"+incidentRange())
	if d.row(byPart, "network") != 0 || d.row(byPeer, "10.0.1.3") < 0 || d.row(byStatus, "HTTP 503") < 0 {
		t.Errorf("%s", d.texts())
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
