package servicemap

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestJoinAndClock(t *testing.T) {
	for name, c := range map[string]struct {
		ahead time.Duration
		ppm   float64
	}{
		"same":          {0, 0},
		"milliseconds":  {7 * time.Millisecond, 0},
		"behind":        {-1234 * time.Microsecond, 0},
		"minutes":       {3 * time.Minute, 0},
		"a bad quartz":  {-40 * time.Millisecond, 48},
		"slow, behind":  {-2 * time.Second, -20},
		"hardly at all": {5 * time.Microsecond, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.host("web", 0, 0, "10.0.0.1")
			s.host("db", c.ahead, c.ppm, "10.0.0.7")
			s.talk(600, time.Second, turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:1", server: "10.0.0.7:3306"}, 0.4)
			j := Join(s.ends, s.hosts)
			both := 0
			for _, e := range s.ends {
				for _, o := range s.ends {
					if e.called() && !o.called() && e.Seq == o.Seq && e.Client == o.Client {
						both++
					}
				}
			}
			if len(j.All) != both || both < 300 {
				t.Fatalf("%d joined of %d that were kept at both ends", len(j.All), both)
			}
			for _, x := range j.All {
				if x.Called.Seq != x.Served.Seq || x.Called.Client != x.Served.Client || x.Translated {
					t.Fatalf("joined %+v with %+v", x.Called, x.Served)
				}
			}
			clock := j.Clock("web", "db")
			if clock == nil {
				t.Fatal("the clock is not known")
			}
			at := clock.At.UnixNano()
			truth := s.ahead["db"](at)
			if off := clock.OffsetNS - truth; abs(off) > clock.UncertaintyNS || clock.UncertaintyNS > 150_000 {
				t.Errorf("offset %d ± %d ns, it is %d", clock.OffsetNS, clock.UncertaintyNS, truth)
			}
			// What is not known of the offset may be drift.
			if bound := 2 * float64(clock.UncertaintyNS) / 300e9 * 1e6; math.Abs(clock.DriftPPM-c.ppm) > bound+0.5 {
				t.Errorf("drift %.3f ppm, it is %.3f", clock.DriftPPM, c.ppm)
			}
			if turned := j.Clock("db", "web"); turned.OffsetNS != -clock.OffsetNS || turned.A != "db" {
				t.Errorf("turned: %+v", turned)
			}
		})
	}
}

// TestOrderDoesNotMatter: the same ends in another order give the same.
func TestOrderDoesNotMatter(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", time.Second, 0, "10.0.0.7")
	s.talk(100, time.Second, turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:1", server: "10.0.0.7:3306"}, 0.3)
	first := Join(s.ends, s.hosts)
	other := slices.Clone(s.ends)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(other), func(i, k int) { other[i], other[k] = other[k], other[i] })
	second := Join(other, s.hosts)
	if !reflect.DeepEqual(first.All, second.All) || !reflect.DeepEqual(first.Clocks, second.Clocks) {
		t.Error("the order matters")
	}
}

// TestPortsUsedAgain: the same client port and number on a new connection, minutes
// later; the nearest in time is the one.
func TestPortsUsedAgain(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", 90*time.Millisecond, 0, "10.0.0.7")
	turns := turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:1", server: "10.0.0.7:3306"}
	s.talk(70, time.Second, turns, 0) // tells the clock
	for i := range 20 {
		turns.at = start + int64(i)*20e9
		turns.client, turns.there, turns.back, turns.work = "10.0.0.1:50000", 100_000, 100_000, 1_000_000
		turns.onlyCalled, turns.onlyServed = i%4 == 1, i%4 == 2
		delete(s.seq, turns.client+turns.server)
		s.add(turns)
	}
	n := 0
	j := Join(s.ends, s.hosts)
	for _, x := range j.All {
		if x.Called.Client.Port() != 50000 {
			continue
		}
		n++
		if apart := x.Served.First - x.Called.First - int64(90*time.Millisecond); abs(apart) > 1e6 {
			t.Errorf("joined requests that are %d ns apart", apart)
		}
	}
	if n != 10 {
		t.Errorf("%d joined of 10 that both ends kept", n)
	}
}

// TestOldConnections: one end has seen the connection from its middle on.
func TestOldConnections(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", -30*time.Millisecond, 0, "10.0.0.7")
	turns := turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:1", server: "10.0.0.7:3306"}
	s.talk(70, time.Second, turns, 0)
	known := len(s.ends)
	s.seq = map[string]uint32{}
	s.behind["db"] = 5000
	turns.client = "10.0.0.1:50001"
	s.seq[turns.client+turns.server] = 6000
	for i := range 40 {
		turns.at, turns.there, turns.back, turns.work = start+int64(i)*1e9, 100_000, 100_000, 1_000_000
		turns.onlyCalled = i%5 == 0
		s.add(turns)
	}
	j := Join(s.ends, s.hosts)
	if want := known/2 + 32; len(j.All) != want {
		t.Errorf("%d joined, want %d", len(j.All), want)
	}
	for _, x := range j.All {
		if x.Called.Client.Port() == 50001 && x.Called.Seq != x.Served.Seq+5000 {
			t.Errorf("joined %d with %d", x.Called.Seq, x.Served.Seq)
		}
	}
}

// TestClockLies: some pairs are none, and the rest tell the clock all the same.
func TestClockLies(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var bounds []bound
	for i := range 200 {
		b := bound{at: start + int64(i)*1e9, low: 1_000_000 - int64(r.ExpFloat64()*1e5) - 20_000, high: 1_000_000 + int64(r.ExpFloat64()*1e5) + 20_000}
		if i%5 == 0 {
			b.low += int64(r.NormFloat64() * 1e8)
			b.high = b.low + 100_000
		}
		bounds = append(bounds, b)
	}
	c, ok := estimate(bounds)
	if !ok || abs(c.OffsetNS-1_000_000) > c.UncertaintyNS || c.UncertaintyNS > 100_000 || c.Outside < 30 || c.DriftPPM != 0 {
		t.Errorf("%v %+v", ok, c)
	}
	if c, ok := estimate(bounds[:2]); ok {
		t.Errorf("two requests tell a clock: %+v", c)
	}
	var none []bound
	for i := range 100 {
		none = append(none, bound{at: start + int64(i)*1e9, low: int64(i) * 7919 % 100 * 1e9, high: int64(i)*7919%100*1e9 + 1000})
	}
	if c, ok := estimate(none); ok {
		t.Errorf("requests that contradict each other tell a clock: %+v", c)
	}
}

func TestShares(t *testing.T) {
	s := newScene()
	s.host("web", 0, 0, "10.0.0.1")
	s.host("db", time.Second, 0, "10.0.0.7")
	s.add(turn{at: start, clientHost: "web", serverHost: "db", client: "10.0.0.1:40000", server: "10.0.0.7:3306",
		there: 3e6, back: 5e6, work: 10e6, readLate: 2e6})
	j := Joined{Called: &s.ends[0], Served: &s.ends[1]}
	got, ok := j.Shares()
	want := Shares{Requests: 1, Total: 20e6, Client: 2e6, Server: 10e6, Wire: 8e6}
	if !ok || got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if w := got.WireShare(); w != 0.4 {
		t.Errorf("the wire had %.2f", w)
	}
}

// TestSharesAddUp: whatever the ends say.
func TestSharesAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		c, v := End{Seq: 1, Host: "a"}, End{Seq: 1, Host: "b"}
		for p := range c.Ledger {
			c.Ledger[p], v.Ledger[p] = int64(r.IntN(3))*r.Int64N(1e9), int64(r.IntN(3))*r.Int64N(1e9)
		}
		c.TotalNS, v.TotalNS = c.Ledger.Total(), v.Ledger.Total()
		j := Joined{Called: &c, Served: &v}
		s, ok := j.Shares()
		if !ok {
			continue
		}
		if s.Client < 0 || s.Server < 0 || s.Wire < 0 || s.Client+s.Server+s.Wire != s.Total || s.Retrans > s.Wire {
			t.Fatalf("%+v of %+v and %+v", s, c.Ledger, v.Ledger)
		}
	}
}
