package record

import (
	"math"
	"math/bits"
	"net/netip"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// FuzzKeep decides on any requests. What is kept stands for a power of two of what it
// stood for, whatever is unfinished is not kept, and there are no more habits than may
// be, however many endpoints there are.
func FuzzKeep(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), int64(5e6), uint32(1), false)
	f.Add(make([]byte, 300), int64(math.MaxInt64), uint32(math.MaxUint32), true)
	f.Add([]byte{255, 1, 255, 2, 255, 3}, int64(-1), uint32(0), false)
	f.Fuzz(func(t *testing.T, data []byte, took int64, weight uint32, bySlow bool) {
		// A habit has three histograms.
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 16 << 10, Fixed: 8 << 20, CPU: 2 * time.Second}, func() {
			slow := time.Duration(0)
			if bySlow {
				slow = time.Duration(max(took/2, 1))
			}
			k := newKeeper(slow, start)
			now := start
			var r observe.Request
			for i, b := range data {
				r = observe.Request{Side: observe.Side(1 + b&1), Seq: uint32(i), Weight: weight, StartNS: took ^ int64(b)<<30,
					Local: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, b, byte(i >> 8), 1}), uint16(i)), Peer: netip.MustParseAddrPort("[::1]:1")}
				r.Ledger[int(b)%len(r.Ledger)] = took / int64(1+b%7)
				if b&6 == 6 {
					r.Flags = observe.RequestFlags(1) << (b % 24)
				}
				if b&48 == 48 {
					r.Status = observe.StatusError
				}
				why, stands := k.keep(&r)
				switch {
				case why > store.Failed:
					t.Fatalf("why %d", why)
				case stands == 0:
				case r.Flags&observe.FlagUnfinished != 0:
					t.Fatal("one that is not over is kept")
				case stands != math.MaxUint32 && (stands%max(weight, 1) != 0 || bits.OnesCount32(stands/max(weight, 1)) != 1):
					t.Fatalf("of weight %d it stands for %d", weight, stands)
				}
				if b%16 == 0 {
					now = now.Add(time.Duration(b) * 2 * time.Second)
					k.tick(now)
				}
				if len(k.habits) > maxHabits {
					t.Fatalf("%d habits", len(k.habits))
				}
			}
			// Both ends of a connection have the same lot.
			other := r
			other.Side, other.Local, other.Peer = 3-r.Side, r.Peer, r.Local
			if len(data) > 0 && sampleHash(&r) != sampleHash(&other) {
				t.Error("the ends have different lots")
			}
		})
	})
}

// FuzzFindings follows findings through any windows: one that goes on is reported once for
// each window, one that ends ends once.
func FuzzFindings(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 2, 3, 0, 2, 2, 0, 0, 2})
	f.Add([]byte{7, 0, 7, 255, 0, 7, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var c course
		at := start
		open := map[diagnose.Identity]bool{}
		var list []cause.Finding
		for i, b := range data {
			if b != 0 && i < len(data)-1 { // a window ends with 0
				list = append(list, found([]cause.ID{"blocked-on-disk", "cpu-saturated"}[b&1], int(b>>1&7), int(b>>4)))
				continue
			}
			gap := time.Duration(0)
			if len(list) > 3 {
				gap = 2 * diagnose.Apart
			}
			begin := at.Add(gap)
			at = begin.Add(10 * time.Second)
			now := map[diagnose.Identity]bool{}
			for _, x := range c.add(begin, at, list) {
				id := diagnose.IdentityOf(&x.Finding)
				switch {
				case x.End.IsZero():
					if now[id] {
						t.Fatalf("%v is reported twice", id)
					}
					now[id] = true
					if x.New != (x.Windows == 1) || x.Windows < 1 || x.Onset.After(at) {
						t.Fatalf("%+v", x)
					}
					if !x.New && !open[id] {
						t.Fatalf("%v goes on, and did not begin", id)
					}
				case !open[id] || x.New:
					t.Fatalf("%v ends, and was not open: %+v", id, x)
				case x.End.After(begin):
					t.Fatalf("%v ends at %s, after the window began that it is not in", id, x.End)
				default:
					delete(open, id)
				}
			}
			for id := range open {
				if !now[id] {
					t.Fatalf("%v is forgotten", id)
				}
			}
			open, list = now, nil
		}
	})
}

// FuzzStatm reads how much memory a process has.
func FuzzStatm(f *testing.F) {
	f.Add("1234 567 89 1 0 2 0\n")
	f.Add("1 9223372036854775807")
	f.Add("1 -1")
	f.Fuzz(func(t *testing.T, text string) {
		if n := parseStatm(text); n < 0 {
			t.Errorf("%q: %d bytes", text, n)
		}
	})
}
