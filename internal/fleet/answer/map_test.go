package answer

import (
	"bytes"
	"context"
	"testing"

	"github.com/slowray/slowray/internal/fleet/memory"
)

func TestMap(t *testing.T) {
	w := newWorld(3)
	w.run(200)
	v, err := NewLooker(w).Look(context.Background(), Question{From: moment(0), To: moment(200)})
	if err != nil {
		t.Fatal(err)
	}
	m := v.Map
	var b bytes.Buffer
	if err := m.JSON(&b); err != nil {
		t.Fatal(err)
	}
	byschema(t, "fleetmap.schema.json", b.Bytes())
	if len(m.Served) != 7 || len(m.Edges) != 6 || m.Joined == 0 {
		t.Fatalf("%d served, %d edges, %d joined", len(m.Served), len(m.Edges), m.Joined)
	}
	for _, e := range m.Edges {
		switch {
		case e.Port == 3306 && (e.ToHost != "db-7" || e.How != "address" || e.Joined == 0 || e.WireShare == nil || *e.WireShare <= 0 || *e.WireShare > 0.3):
			t.Errorf("%+v", e)
		case e.Port == 6379 && (e.ToHost != e.Host || e.How != "same host" || e.WireShare != nil):
			t.Errorf("%+v", e)
		case e.Server == nil || e.Caller.Rate < 3 || e.Caller.P99US < e.Server.P50US:
			t.Errorf("%+v", e)
		}
	}
	if v, err = NewLooker(new(memory.Archive)).Look(context.Background(), Question{From: moment(0), To: moment(200)}); err != nil || len(v.Map.Edges) != 0 {
		t.Errorf("of nothing: %+v, %v", v, err)
	}
}
