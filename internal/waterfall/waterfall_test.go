package waterfall

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/schema"
)

const ms = 1_000_000

// side is a hop of one trace: from and to in ms, by a process; conn is the client's port.
func side(s observe.Side, pid, tid int, parent byte, conn, server uint16, from, to int64) Hop {
	r := observe.Request{
		Side: s, StartNS: from * ms, PID: pid, TID: tid, Seq: 1, Requests: 1, Weight: 1, Trace: observe.Trace{ID: [16]byte{1}, Parent: [8]byte{parent}, Flags: 1},
		Local: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), server), Peer: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), conn),
	}
	if s == observe.Called {
		r.Local, r.Peer = r.Peer, r.Local
	}
	r.Ledger[observe.Server] = (to - from) * ms
	return Hop{Request: schema.Request{Request: r, Process: observe.Identity{Comm: fmt.Sprint("p", pid)}}}
}

// shape is the steps as a person would draw them.
func shape(steps []Step) (list []string) {
	for _, s := range steps {
		text := strings.Repeat(" ", s.Depth)
		if s.Called != nil {
			text += s.Called.Request.Process.Comm + ">"
		}
		if s.Served != nil {
			text += s.Served.Request.Process.Comm
		}
		list = append(list, text)
	}
	return list
}

func TestSteps(t *testing.T) {
	const c, s = observe.Called, observe.Served
	elsewhere := side(s, 3, 3, 2, 9999, 83, 100, 200) // its client's address was translated
	elsewhere.Host = "other"
	for name, test := range map[string]struct {
		hops []Hop
		want []string
	}{
		"chain of three": {[]Hop{
			side(s, 1, 1, 1, 5001, 81, 0, 100), side(c, 1, 1, 2, 5002, 82, 10, 60), side(s, 2, 2, 2, 5002, 82, 11, 59),
			side(c, 2, 2, 3, 5003, 83, 20, 40), side(s, 3, 3, 3, 5003, 83, 21, 39), side(c, 1, 1, 4, 5004, 83, 70, 90),
		}, []string{"p1", " p1>p2", "  p2>p3", " p1>"}},
		"proxy that passes the header as it is": {[]Hop{
			side(s, 1, 1, 1, 5001, 81, 0, 100), side(c, 1, 1, 1, 5002, 82, 10, 60), side(s, 2, 2, 1, 5002, 82, 11, 59),
		}, []string{"p1", " p1>p2"}},
		"two at once in one process, told apart by thread": {[]Hop{
			side(s, 1, 11, 1, 5001, 81, 0, 100), side(s, 1, 12, 2, 5002, 81, 1, 101), side(c, 1, 12, 3, 5003, 82, 10, 60),
		}, []string{"p1", "p1", " p1>"}},
		"two at once in one thread: not certain": {[]Hop{
			side(s, 1, 1, 1, 5001, 81, 0, 100), side(s, 1, 1, 2, 5002, 81, 1, 101), side(c, 1, 1, 3, 5003, 82, 10, 60),
		}, []string{"p1", "p1", "p1>"}},
		"call after the answer":         {[]Hop{side(s, 1, 1, 1, 5001, 81, 0, 5), side(c, 1, 1, 2, 5002, 82, 10, 60)}, []string{"p1", "p1>"}},
		"address translated on the way": {[]Hop{side(c, 1, 1, 2, 5002, 82, 10, 60), elsewhere}, []string{"p1>p3"}},
		"two calls of one span through a translation": {[]Hop{
			side(c, 1, 1, 2, 5002, 82, 10, 60), side(c, 1, 1, 2, 5003, 82, 61, 90), elsewhere,
		}, []string{"p1>", "p1>", "p3"}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // in whatever order they come
				rand.Shuffle(len(test.hops), func(i, j int) { test.hops[i], test.hops[j] = test.hops[j], test.hops[i] })
				if diff := cmp.Diff(test.want, shape(Traces(test.hops)[0])); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestAmended(t *testing.T) {
	first, amended := side(observe.Served, 1, 1, 1, 5001, 81, 0, 10), side(observe.Served, 1, 1, 1, 5001, 81, 0, 100)
	if steps := Traces([]Hop{amended, first})[0]; len(steps) != 1 || steps[0].Served.Request.TotalNS() != 100*ms {
		t.Errorf("%v", shape(steps))
	}
}

// TestEveryHopIsShown: whatever hops there are, each that is not amended is in one step, and
// the deepest step hangs on one before it.
func TestEveryHopIsShown(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var hops []Hop
		for i := range 1 + r.IntN(40) {
			from := r.Int64N(100)
			h := side(observe.Side(1+r.IntN(2)), r.IntN(4), r.IntN(3), byte(r.IntN(4)), uint16(5000+i), uint16(80+r.IntN(3)), from, from+r.Int64N(50))
			h.Request.Trace.ID[0] = byte(1 + r.IntN(2))
			hops = append(hops, h)
		}
		shown := 0
		for _, steps := range Traces(append([]Hop(nil), hops...)) {
			for i, s := range steps {
				if s.Called != nil {
					shown++
				}
				if s.Served != nil {
					shown++
				}
				if i == 0 && s.Depth != 0 || i > 0 && s.Depth > steps[i-1].Depth+1 {
					t.Fatalf("%v", shape(steps))
				}
			}
		}
		if shown != len(hops) {
			t.Fatalf("%d of %d hops are shown", shown, len(hops))
		}
	}
}

func TestText(t *testing.T) {
	hops := []Hop{
		side(observe.Served, 1, 1, 1, 5001, 81, 0, 100), side(observe.Called, 1, 1, 2, 5002, 82, 10, 60), side(observe.Served, 2, 2, 2, 5002, 82, 11, 59),
	}
	hops[1].Request.Label, hops[2].Request.HTTP = "GET /stock\x1b[31m", 200
	var out strings.Builder
	if err := Text(&out, Traces(hops), report.Style{}); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "\n")
	_, got, _ = strings.Cut(got, "\n") // the time of day
	want := "" +
		"    +0ns  100ms ████████████████████ p1[1] :81\n" +
		"                served: server 100ms\n" +
		" +10.0ms 50.0ms ··██████████········   p1[1] → p2[2] :82  GET /stock�[31m\n" +
		"                  called: server 50.0ms\n" +
		"                  served: server 48.0ms\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("control characters of a label are printed")
	}
}

// TestTextFits: no line is wider than the terminal.
func TestTextFits(t *testing.T) {
	hops := []Hop{side(observe.Served, 1, 1, 1, 5001, 81, 0, 100), side(observe.Called, 1, 1, 2, 5002, 82, 10, 60), side(observe.Served, 2, 2, 2, 5002, 82, 11, 59)}
	hops[1].Request.Label = "GET /stock/of/a/warehouse/with/a/long/name"
	var out strings.Builder
	if err := Text(&out, Traces(hops), report.Style{Width: 64}); err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(out.String(), "\n") {
		if n := utf8.RuneCountInString(line); n > 64 && i > 1 && i < strings.Count(out.String(), "\n")-1 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}
