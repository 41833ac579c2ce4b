package record

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// bothEnds is a request as the caller and as the server see it.
func bothEnds(client, server netip.AddrPort, seq uint32, at time.Time, total time.Duration) (called, served *observe.Request) {
	called = &observe.Request{Side: observe.Called, Local: client, Peer: server, Seq: seq, StartNS: at.UnixNano(), Weight: 1}
	called.Ledger[observe.Server] = int64(total)
	served = &observe.Request{Side: observe.Served, Local: server, Peer: client, Seq: seq, StartNS: at.Add(3 * time.Millisecond).UnixNano(), Weight: 1}
	served.Ledger[observe.Server] = int64(total)
	return called, served
}

// TestBothEndsKeepTheSame: two hosts, the caller's one with three callers of the
// same database, so that each end thins by another number.
func TestBothEndsKeepTheSame(t *testing.T) {
	server := netip.MustParseAddrPort("10.0.0.7:3306")
	mapped := netip.AddrPortFrom(netip.AddrFrom16(server.Addr().As16()), server.Port())
	db := testKeeper(0)
	var keptServed, both, keptCalled int
	callers := [3]*keeper{testKeeper(0), testKeeper(0), testKeeper(0)}
	for second := range 20 {
		for i := range 900 {
			at := start.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Millisecond)
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i % 3)}), uint16(40000+i%30))
			c, s := bothEnds(client, server, uint32(second*30+i/30+1), at, time.Millisecond)
			s.Local = mapped
			_, served := db.keep(s)
			_, called := callers[i%3].keep(c)
			if second < 2 { // the first second is not thinned alike
				continue
			}
			if served > 0 {
				keptServed++
			}
			if called > 0 {
				keptCalled++
			}
			if served > 0 && called > 0 {
				both++
			}
		}
		now := start.Add(time.Duration(second+1) * time.Second)
		db.tick(now)
		for _, k := range callers {
			k.tick(now)
		}
	}
	if keptServed < 30 || keptCalled <= keptServed {
		t.Fatalf("%d kept at the server, %d at its callers: nothing to compare", keptServed, keptCalled)
	}
	// By chance one of 90 would be kept at both. How many an end keeps of a second
	// grows less while it lasts, so not all are.
	if float64(both) < 0.6*float64(keptServed) {
		t.Errorf("of %d requests kept at the server %d are kept at the caller too", keptServed, both)
	}
}

// TestSampleIsFair: what is kept tells the mean of all, and requests of each
// connection and at each place in it are kept as often as others.
func TestSampleIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	server := netip.MustParseAddrPort("[2001:db8::7]:3306")
	const connections, each = 200, 400
	var byConnection [connections]float64
	var bySeq [8]float64
	var n, kept, sum, sumKept float64
	for c := range connections {
		client := netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), uint16(30000+c))
		for i := range each {
			total := time.Duration(r.ExpFloat64() * 1e6)
			_, served := bothEnds(client, server, uint32(i+1), start.Add(time.Duration(i)*time.Millisecond), total)
			n++
			sum += float64(total)
			if sampleHash(served)&7 != 0 {
				continue
			}
			kept++
			sumKept += float64(total)
			byConnection[c]++
			bySeq[i%8]++
		}
	}
	if expected := n / 8; math.Abs(kept-expected) > 5*math.Sqrt(expected) {
		t.Errorf("%.0f kept, want about %.0f", kept, expected)
	}
	if ratio := (sumKept / kept) / (sum / n); ratio < 0.95 || ratio > 1.05 {
		t.Errorf("the mean of those kept is %.3f of that of all", ratio)
	}
	for what, counts := range map[string][]float64{"connections": byConnection[:], "places": bySeq[:]} {
		expected, chi := kept/float64(len(counts)), 0.0
		for _, k := range counts {
			chi += (k - expected) * (k - expected) / expected
		}
		df := float64(len(counts) - 1)
		if chi > df+6*math.Sqrt(2*df) {
			t.Errorf("%s: χ² = %.0f at %.0f degrees of freedom: not kept alike", what, chi, df)
		}
	}
}

// TestFewPortsAreNotKeptForEver: a client with a few ports and a connection for
// each request.
func TestFewPortsAreNotKeptForEver(t *testing.T) {
	server := netip.MustParseAddrPort("10.0.0.7:80")
	k := testKeeper(0)
	var weight uint64
	const seconds, rate = 600, 200
	for second := range seconds {
		for i := range rate {
			at := start.Add(time.Duration(second)*time.Second + time.Duration(i)*5*time.Millisecond)
			_, s := bothEnds(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(20000+i%51)), server, 1, at, time.Millisecond)
			why, w := k.keep(s)
			if why != store.Sampled {
				t.Fatalf("kept as %d", why)
			}
			weight += uint64(w)
		}
		k.tick(start.Add(time.Duration(second+1) * time.Second))
	}
	if got := float64(weight) / (seconds * rate); got < 0.8 || got > 1.2 {
		t.Errorf("those kept stand for %.2f of all", got)
	}
}

func BenchmarkLot(b *testing.B) {
	_, s := bothEnds(netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.7:80"), 1, start, time.Millisecond)
	b.ReportAllocs()
	var sum uint64
	for b.Loop() {
		s.Seq++
		sum += sampleHash(s)
	}
	_ = sum
}
