package answer

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestGraphAndTableOfARange(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	w := newWorld(6)
	w.db = step(1200, 45*time.Millisecond)
	w.run(1500)
	q := Question{From: moment(1200), To: moment(1500)}
	v, err := NewLooker(w).Look(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	r := v.Report
	if want := w.why(t, 1200, 1500); textOf(t, r) != textOf(t, want) {
		t.Errorf("Look says\n%s\nand Why\n%s", textOf(t, r), textOf(t, want))
	}
	g := v.Map.Graph(r.Abnormal)
	nodes := map[string]*Node{}
	for i := range g.Nodes {
		nodes[g.Nodes[i].Title] = &g.Nodes[i]
	}
	db, app, redis := nodes["mariadbd"], nodes["app"], nodes["redis"]
	if len(g.Nodes) != 3 || db == nil || app == nil || redis == nil {
		t.Fatalf("nodes %+v", g.Nodes)
	}
	if db.Hosts != 1 || db.Abnormal != 1 || db.Worst != "db-7" || db.P99US < 45_000 || db.Rate < 100 || len(db.Ports) != 1 || db.Ports[0] != 3306 {
		t.Errorf("the database: %+v", db)
	}
	if app.Hosts != 6 || app.Abnormal != 6 || app.Kind != "service" || redis.Abnormal != 0 || redis.Hosts != 6 {
		t.Errorf("app %+v, redis %+v", app, redis)
	}
	if len(g.Links) != 2 {
		t.Fatalf("links %+v", g.Links)
	}
	l := g.Links[0] // what is abnormal first
	if l.From != app.ID || l.To != db.ID || l.Hosts != 6 || l.Abnormal != 6 || l.Joined == 0 || l.WireShare == nil || *l.WireShare < 0 || *l.WireShare > 0.2 {
		t.Errorf("link %+v", l)
	}
	// Of all calls of all hosts: each takes 0.7 to 1.3 times 47.3 ms.
	if l.P50US < 45_000 || l.P50US > 50_000 || l.P99US < 58_000 || l.P99US > 64_000 || l.WorstUS < l.P99US {
		t.Errorf("p50 %d, p99 %d, on the worst host %d", l.P50US, l.P99US, l.WorstUS)
	}
	if l.Wrong == nil || l.Wrong.Unit != "us" || l.Wrong.Value < 40_000 || l.Wrong.Expected > 5_000 || !strings.Contains(l.Wrong.Text, "calls 10.0.0.7:3306") || redis.Wrong != nil {
		t.Errorf("wrong %+v", l.Wrong)
	}
	table := v.Table
	for _, s := range table.Services {
		want := map[string]int{"mariadbd:3306": 1, "app:8080": 6, "redis:6379": 0}
		if n, known := want[s.Service]; !known || s.Abnormal != n || s.Rate <= 0 {
			t.Errorf("service %+v", s)
		}
	}
	if table.Seconds != 300 || len(table.Services) != 3 || len(table.Hosts) != 7 || table.Hosts[0].Host != "db-7" {
		t.Errorf("table %+v", table)
	}
	told := r.Told()
	if len(told.Causes) != 1 || !strings.Contains(told.Causes[0].Text, "db-7") || told.Healthy != "" || !told.Causes[0].Lasts {
		t.Fatalf("told %+v", told)
	}
	if c := told.Causes[0]; c.Programs[0] != "mariadbd" || len(c.Programs) != 2 || len(c.Evidence) == 0 || len(c.Chain) == 0 || !strings.Contains(c.Extent, "by chance") {
		t.Errorf("cause %+v", c)
	}
	if well := w.why(t, 900, 1100).Told(); !strings.Contains(well.Healthy, "Nothing is abnormal") {
		t.Errorf("before: %+v", well)
	}
}

func TestGraphIsBounded(t *testing.T) {
	m := &Map{}
	for i := range 2 * mostNodes {
		m.Edges = append(m.Edges, Edge{Host: "h", Service: "app", Addr: "192.0.2.1", Port: i + 1, Portion: 1, Why: "nobody has it", Caller: Saw{Rate: float64(i)}})
	}
	bad := Endpoint{Host: "h", Service: "app", Side: "called", Addr: "192.0.2.1", Port: 2 * mostNodes}
	g := m.Graph([]Endpoint{bad})
	if len(g.Nodes) != mostNodes || g.Left != mostNodes+1 || len(g.Links) != mostNodes-1 || g.Links[0].Abnormal != 1 || g.Nodes[1].Kind != "address" || g.Nodes[1].Why == "" {
		t.Errorf("%d nodes, %d left out, %d links, first %+v", len(g.Nodes), g.Left, len(g.Links), g.Links[0])
	}
}
