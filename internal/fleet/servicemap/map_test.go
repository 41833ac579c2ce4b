package servicemap

import (
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

func mapOf(s *scene, points ...*fleet.Point) *Map {
	b := NewBuilder(s.hosts)
	for _, p := range points {
		b.Add(p)
	}
	for _, e := range s.ends {
		b.AddEnd(e)
	}
	return b.Map()
}

func texts(m *Map) []string {
	var all []string
	for i := range m.Edges {
		all = append(all, textOf(&m.Edges[i]))
	}
	return all
}

func TestWhoCallsWhom(t *testing.T) {
	const S, C = observe.Served, observe.Called
	s := newScene()
	s.host("lb", 0, 0, "10.0.0.1", "203.0.113.1")
	s.host("web-1", 0, 0, "10.0.0.2/24", "fe80::2%eth0")
	s.host("web-2", 0, 0, "10.0.0.3", "10.9.9.9")
	s.host("db", 0, 0, "10.0.0.7", "10.9.9.9") // an address that two hosts have
	m := mapOf(s,
		point("lb", "nginx:80", S, "203.0.113.1", 80, 100, 1000),
		point("lb", "nginx", C, "10.0.0.2", 8080, 50, 900),
		point("lb", "nginx", C, "10.0.0.3", 8080, 50, 900),
		point("web-1", "app:8080", S, "10.0.0.2", 8080, 50, 800),
		point("web-2", "app:8080", S, "172.17.0.2", 8080, 50, 800), // a container behind the host's port
		point("web-1", "app", C, "10.0.0.7", 3306, 50, 500),
		point("web-2", "app", C, "::ffff:10.0.0.7", 3306, 50, 500),
		point("db", "mariadb:3306", S, "10.0.0.7", 3306, 100, 400),
		point("web-1", "app", C, "127.0.0.1", 6379, 50, 50),
		point("web-1", "redis:6379", S, "127.0.0.1", 6379, 50, 40),
		point("web-2", "app", C, "127.0.0.1", 6379, 50, 50), // nothing answers that was seen
		point("web-1", "app", C, "172.17.0.2", 9000, 50, 50),
		point("web-1", "php:9000", S, "172.17.0.2", 9000, 50, 50), // the same private address on two hosts
		point("db", "php:9000", S, "172.17.0.2", 9000, 50, 50),
		point("web-1", "app", C, "192.0.2.99", 443, 50, 5000),
		point("web-1", "app", C, "10.9.9.9", 443, 50, 5000),
		point("web-1", "app", C, "10.0.0.7", 22, 1, 5000),
		point("web-1", "app", C, "not an address", 22, 1, 5000),
	)
	want := []string{
		"lb/nginx → 10.0.0.2:8080 = web-1/app:8080 (address)",
		"lb/nginx → 10.0.0.3:8080 = web-2/app:8080 (address)",
		"web-1/app → 10.0.0.7:22 = db/ (unknown)",
		"web-1/app → 10.0.0.7:3306 = db/mariadb:3306 (address)",
		"web-1/app → 10.9.9.9:443 = / (unknown)",
		"web-1/app → 127.0.0.1:6379 = web-1/redis:6379 (same host)",
		"web-1/app → 172.17.0.2:9000 = web-1/php:9000 (same host)",
		"web-1/app → 192.0.2.99:443 = / (unknown)",
		"web-1/app → not an address:22 = / (unknown)",
		"web-2/app → 127.0.0.1:6379 = web-2/ (unknown)",
		"web-2/app → ::ffff:10.0.0.7:3306 = db/mariadb:3306 (address)",
	}
	if got := texts(m); !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			var g, w string
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			if g != w {
				t.Errorf("got  %s\nwant %s", g, w)
			}
		}
	}
	for _, e := range m.Edges {
		if (e.How == Unknown) != (e.Why != "") || (e.How == Unknown) != (e.Server == nil) {
			t.Errorf("%s: why %q, server %v", textOf(&e), e.Why, e.Server)
		}
	}
	if e := m.Edges[3]; e.Caller.P99US != 500 || e.Server.P99US != 400 || e.Server.Requests != 100 {
		t.Errorf("views: %+v, %+v", e.Caller, e.Server)
	}
}

// TestBalancerOfPackets: an address that no host has leads to two, as requests that were
// seen at both ends show.
func TestBalancerOfPackets(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db-1", 4*time.Millisecond, 0, "10.0.0.7")
	s.host("db-2", -9*time.Millisecond, 0, "10.0.0.8")
	s.talk(90, time.Second, turn{clientHost: "web", serverHost: "db-1", client: "10.0.0.1:1", server: "10.0.0.100:3306", serverThere: "10.0.0.7:3307"}, 0.2)
	for i := range s.ends { // two thirds go to the first, the rest to the second
		s.ends[i].First += 1e8
		if s.ends[i].Answer > 0 {
			s.ends[i].Answer += 1e8
		}
	}
	second := newScene()
	second.ahead, second.random = s.ahead, s.random
	second.talk(30, 3*time.Second, turn{clientHost: "web", serverHost: "db-2", client: "10.0.0.1:1", server: "10.0.0.100:3306", serverThere: "10.0.0.8:3307"}, 0)
	for i := range second.ends { // on ports of its own
		e := &second.ends[i]
		e.Client = addPort(e.Client, 100)
	}
	s.ends = append(s.ends, second.ends...)
	m := mapOf(s,
		point("web", "app-web", observe.Called, "10.0.0.100", 3306, 120, 500),
		point("db-1", "srv-db-1:3307", observe.Served, "10.0.0.7", 3307, 90, 400),
		point("db-2", "srv-db-2:3307", observe.Served, "10.0.0.8", 3307, 30, 400),
	)
	want := []string{
		"web/app-web → 10.0.0.100:3306 = db-1/srv-db-1:3307 (translated)",
		"web/app-web → 10.0.0.100:3306 = db-2/srv-db-2:3307 (translated)",
	}
	if got := texts(m); !slices.Equal(got, want) {
		t.Fatalf("got %q", got)
	}
	sum := 0.0
	for _, e := range m.Edges {
		sum += e.Portion
		if e.Server == nil || e.Shares.Requests == 0 {
			t.Errorf("%s: %+v", textOf(&e), e)
		}
	}
	if p := m.Edges[0].Portion; sum < 0.999 || sum > 1.001 || p < 0.6 || p > 0.8 {
		t.Errorf("portions %.2f, together %.2f", p, sum)
	}
}

// TestNetworkFromBothEnds: the way takes 8 ms of 9; the caller cannot tell it from the
// server's time.
func TestNetworkFromBothEnds(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", time.Minute, 0, "10.0.0.7")
	for i := range 50 {
		s.add(turn{at: start + int64(i)*1e9, clientHost: "web", serverHost: "db", client: "10.0.0.1:40000", server: "10.0.0.7:3306", there: 5e6, back: 3e6, work: 1e6})
	}
	m := mapOf(s,
		point("web", "app-web", observe.Called, "10.0.0.7", 3306, 50, 9000),
		point("db", "srv-db:3306", observe.Served, "10.0.0.7", 3306, 50, 1000))
	e := m.Edges[0]
	if e.Joined != 50 || e.Shares.Requests != 50 || e.Shares.WireShare() < 0.88 || e.Shares.WireShare() > 0.9 {
		t.Errorf("%d joined, the wire has %.3f: %+v", e.Joined, e.Shares.WireShare(), e.Shares)
	}
}

func TestEmpty(t *testing.T) {
	m := NewBuilder(nil).Map()
	if len(m.Edges) != 0 || len(m.Joins.All) != 0 {
		t.Errorf("%+v", m)
	}
	if m.Joins.Clock("a", "b") != nil {
		t.Error("a clock of nobody")
	}
}
