package servicemap

import (
	"testing"
	"time"
)

// TestSourceTranslated: the clients' addresses are those of a gateway for the server.
func TestSourceTranslated(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", 15*time.Millisecond, 0, "192.0.2.7")
	s.talk(60, time.Second, turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:1", server: "192.0.2.7:3306", clientThere: "198.51.100.9:1234"}, 0.2)
	// The gateway gives each connection a port of its own.
	j := Join(s.ends, s.hosts)
	if len(j.All) < 30 {
		t.Fatalf("%d joined", len(j.All))
	}
	for _, x := range j.All {
		if !x.Translated || x.Called.RequestBytes != x.Served.RequestBytes || abs(x.Served.First-x.Called.First-15e6) > 5e6 {
			t.Errorf("joined %+v with %+v", x.Called, x.Served)
		}
	}
	if c := j.Clock("web", "db"); c == nil || abs(c.OffsetNS-15e6) > c.UncertaintyNS {
		t.Errorf("clock %+v", c)
	}
}

// TestNoGuess: ends whose other ends were not kept, from hosts that are known by
// their addresses, are not joined with each other, however alike they are.
func TestNoGuess(t *testing.T) {
	s := newScene()
	s.host("web-1", 0, 0, "10.0.0.1")
	s.host("web-2", 0, 0, "10.0.0.2")
	s.host("db", 0, 0, "10.0.0.7")
	for i := range 40 {
		at := start + int64(i)*1e9
		common := turn{serverHost: "db", server: "10.0.0.7:3306", there: 1e5, back: 1e5, work: 1e6, bytes: 100 + uint64(i)}
		one, two := common, common
		one.at, one.clientHost, one.client, one.onlyCalled = at, "web-1", "10.0.0.1:40000", true
		two.at, two.clientHost, two.client, two.onlyServed = at+50_000, "web-2", "10.0.0.2:40000", true
		s.add(one)
		s.add(two)
	}
	if j := Join(s.ends, s.hosts); len(j.All) != 0 {
		t.Errorf("%d joined that are different requests", len(j.All))
	}
}

// TestAlikeIsUnknown: behind a gateway, requests of the same size at the same time
// cannot be distinguished.
func TestAlikeIsUnknown(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", 0, 0, "192.0.2.7")
	for i := range 200 {
		s.add(turn{at: start + int64(i/20)*1e6, clientHost: "web", serverHost: "db", client: "10.0.0.1:" + []string{"40000", "40001", "40002"}[i%3], server: "192.0.2.7:3306",
			clientThere: "198.51.100.9:" + []string{"1", "2", "3"}[i%3], there: 1e5, back: 1e5, work: 50e6, bytes: 64})
	}
	if j := Join(s.ends, s.hosts); len(j.All) != 0 {
		t.Errorf("%d joined by guessing", len(j.All))
	}
}

func BenchmarkJoin(b *testing.B) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", time.Second, 0, "10.0.0.7")
	s.talk(20_000, 10*time.Millisecond, turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:1", server: "10.0.0.7:3306"}, 0.4)
	b.ReportAllocs()
	for b.Loop() {
		Join(s.ends, s.hosts)
	}
}
