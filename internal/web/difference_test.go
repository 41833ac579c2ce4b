package web

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

type differenceAnswer struct {
	Inside    spanJSON
	Outside   []spanJSON
	Endpoints []struct {
		Key   string
		Added float64 `json:"added_us"`
		Text  string
	}
	Rows []struct {
		Dimension, Name, Unit, Text string
		Inside, Outside             *float64
		Ratio, Explains             *float64
		ShareIn                     *float64 `json:"share_inside"`
		Few                         bool
	}
	Because *string
	Losses  []observe.Loss
}

func (a *differenceAnswer) row(dimension, name string) int {
	for i := range a.Rows {
		if a.Rows[i].Dimension == dimension && a.Rows[i].Name == name {
			return i
		}
	}
	return -1
}

func (a *differenceAnswer) texts() string {
	var b strings.Builder
	for _, r := range a.Rows {
		fmt.Fprintf(&b, "  %s | %s\n", r.Dimension, r.Text)
	}
	return b.String()
}

// One of four clients has a slow way; one request in ten fails.
func TestDifferenceNamesWhatChanged(t *testing.T) {
	a := ask[differenceAnswer](t, serve(t, incident(), Options{}), "/api/difference?"+incidentRange())
	if len(a.Outside) != 2 || len(a.Endpoints) != 1 || !near(a.Endpoints[0].Added, 9_950, 0.01) {
		t.Fatalf("%+v", a.Endpoints)
	}
	network, peer, failed, code := a.row(byPart, "network"), a.row(byPeer, "10.0.1.3"), a.row(byStatus, "failed"), a.row(byStatus, "HTTP 503")
	if network != 0 || peer < 0 || peer > 3 || failed < 0 || code < 0 {
		t.Fatalf("network %d, peer %d, failed %d, 503 %d of\n%s", network, peer, failed, code, a.texts())
	}
	n := a.Rows[network]
	if n.Unit != unitUS || !near(*n.Inside, 10_150, 0.01) || !near(*n.Outside, 200, 0.01) || !near(*n.Explains, 1, 0.01) || n.Few {
		t.Errorf("%+v", n)
	}
	if want := "network: 10.1 ms a request, 200 µs outside (50.8 times); all of the added time."; n.Text != want {
		t.Errorf("%q, want %q", n.Text, want)
	}
	if p := a.Rows[peer]; !near(*p.Explains, 1, 0.02) || !near(*p.ShareIn, 0.25, 0.001) || !near(*p.Inside, 41_000, 0.01) {
		t.Errorf("%+v", p)
	}
	if f := a.Rows[code]; f.Unit != unitShare || *f.Inside != 0.1 || *f.Outside != 0 {
		t.Errorf("%+v", f)
	}
	if a.row(byStatus, "HTTP 200") >= 0 {
		t.Errorf("that fewer are well is reported next to what more are:\n%s", a.texts())
	}
	for _, innocent := range []string{"10.0.1.0", "10.0.1.1", "10.0.1.2"} {
		if a.row(byPeer, innocent) >= 0 {
			t.Errorf("%s is reported:\n%s", innocent, a.texts())
		}
	}
	if a.row(byPart, "server") >= 0 {
		t.Errorf("the server is reported:\n%s", a.texts())
	}
}

// Requests that come by chance, with nothing that changes, tell of nothing.
func TestDifferenceOfNothing(t *testing.T) {
	told := 0
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &memory{}
		for i := range 6000 {
			m.add(noon.Add(time.Duration(i)*100*time.Millisecond), func(q *store.Request) {
				q.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 2, byte(r.IntN(8))}), 40000)
				q.PID = 100 + r.IntN(4)
				q.Ledger[observe.Server] = int64(1e6 * (0.5 + r.ExpFloat64()))
				if r.IntN(50) == 0 {
					q.Status, q.HTTP = observe.StatusError, 500
				}
				if r.IntN(10) > 0 && q.Ledger[observe.Server] < 4e6 {
					q.Weight = 1
				}
			})
		}
		a := ask[differenceAnswer](t, serve(t, m, Options{}), "/api/difference?from="+unixText(noon.Add(4*time.Minute))+"&to="+unixText(noon.Add(6*time.Minute)))
		for _, row := range a.Rows {
			if row.Dimension != byPart { // a mean of the server moves a little by chance
				t.Logf("seed %d: %s %s", seed, row.Dimension, row.Text)
				told++
			}
		}
	}
	if told > 1 {
		t.Errorf("%d things differ by chance, in ten times nothing", told)
	}
}

// Records that stand for many count as many: the slow ones are kept all, of the
// others one in twenty.
func TestDifferenceWeighs(t *testing.T) {
	m := &memory{}
	for i := range 24_000 {
		inside := i >= 10_000 && i < 14_000
		slow := inside && i%10 == 0
		if !slow && i%20 != 1 {
			continue
		}
		m.add(noon.Add(time.Duration(i)*25*time.Millisecond), func(r *store.Request) {
			r.Peer = netip.MustParseAddrPort("10.0.0.1:1000")
			r.Weight = 20
			if slow {
				r.Weight, r.Why, r.PID = 1, store.Slow, 99
				r.Ledger[observe.Server] = 100e6
			}
		})
	}
	a := ask[differenceAnswer](t, serve(t, m, Options{}), "/api/difference?from="+unixText(noon.Add(250*time.Second))+"&to="+unixText(noon.Add(350*time.Second)))
	i := a.row(byProcess, "nginx (99)")
	if i < 0 {
		t.Fatalf("the slow process is not told:\n%s", a.texts())
	}
	// 400 of about 4,400 requests.
	if p := a.Rows[i]; !near(*p.ShareIn, 0.091, 0.02) || !near(*p.Explains, 1, 0.02) || p.Outside == nil && p.Unit == unitShare {
		t.Errorf("%+v", p)
	}
}

func TestDifferenceSaysWhenThereIsLittle(t *testing.T) {
	m := &memory{}
	for i := range 300 {
		m.add(noon.Add(time.Duration(i)*time.Second), func(r *store.Request) {
			if i >= 200 && i < 207 {
				r.Ledger[observe.Server] = 50e6
			}
		})
	}
	a := ask[differenceAnswer](t, serve(t, m, Options{}), "/api/difference?from="+unixText(noon.Add(200*time.Second))+"&to="+unixText(noon.Add(207*time.Second)))
	i := a.row(byPart, "server")
	if i < 0 || !a.Rows[i].Few || !strings.Contains(a.Rows[i].Text, "of only 7 requests") {
		t.Errorf("%s", a.texts())
	}
	if a := ask[differenceAnswer](t, serve(t, m, Options{}), "/api/difference?from="+unixText(noon.Add(-time.Minute))+"&to="+unixText(noon.Add(10*time.Minute))); a.Because == nil {
		t.Errorf("all of the history against nothing: %s", a.texts())
	}
}

// An endpoint that comes up in the range is reported when it makes a good part of the
// requests, and not each port that was open for a moment.
func TestDifferenceTellsWhoCame(t *testing.T) {
	m := &memory{}
	for i := range 1200 {
		m.add(noon.Add(time.Duration(i)*time.Second/2), func(r *store.Request) {
			switch {
			case i >= 600 && i < 700 && i%2 == 0:
				r.Local = netip.MustParseAddrPort("10.0.0.5:8080")
			case i >= 600 && i < 700 && i%11 == 3:
				r.Local = netip.AddrPortFrom(r.Local.Addr(), uint16(40000+i))
			}
		})
	}
	a := ask[differenceAnswer](t, serve(t, m, Options{}), "/api/difference?from="+unixText(noon.Add(300*time.Second))+"&to="+unixText(noon.Add(350*time.Second)))
	came := 0
	for _, r := range a.Rows {
		if r.Dimension == byEndpoint {
			came++
			if r.Name != "nginx 10.0.0.5:8080" || r.Text != "nginx 10.0.0.5:8080 had requests only here: 50." {
				t.Errorf("%+v", r)
			}
		}
	}
	if came != 1 {
		t.Errorf("%d endpoints came:\n%s", came, a.texts())
	}
}

// The parts' differences add up to that of the whole.
func TestDifferencePartsAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m := &memory{}
	for i := range 2000 {
		m.add(noon.Add(time.Duration(i)*time.Second/4), func(q *store.Request) {
			for p := range observe.AckDelay {
				q.Ledger[p] = int64(r.ExpFloat64() * 1e6 * float64(1+int(p)*(i/1000)))
			}
		})
	}
	a := ask[differenceAnswer](t, serve(t, m, Options{}), "/api/difference?from="+unixText(noon.Add(250*time.Second))+"&to="+unixText(noon.Add(500*time.Second)))
	sum := 0.0
	for _, row := range a.Rows {
		if row.Dimension == byPart && row.Explains != nil {
			sum += *row.Explains
		}
	}
	if !near(sum, 1, 0.06) { // parts that hardly changed are not told
		t.Errorf("the parts explain %g of the added time:\n%s", sum, a.texts())
	}
}

func TestRestIsAround(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	span := timeRange{at(0), at(10_000)}
	for _, c := range []struct {
		name            string
		inside, against timeRange
		want            []timeRange
	}{
		{"around", timeRange{at(5000), at(5100)}, timeRange{}, []timeRange{{at(4000), at(5000)}, {at(5100), at(6100)}}},
		{"short", timeRange{at(5000), at(5010)}, timeRange{}, []timeRange{{at(4400), at(5000)}, {at(5010), at(5610)}}},
		{"at the end", timeRange{at(9000), at(11_000)}, timeRange{}, []timeRange{{at(0), at(9000)}}},
		{"given", timeRange{at(5000), at(5100)}, timeRange{at(100), at(200)}, []timeRange{{at(100), at(200)}}},
		{"given, over it", timeRange{at(5000), at(5100)}, timeRange{at(4950), at(5050)}, []timeRange{{at(4950), at(5000)}}},
		{"all", timeRange{at(0), at(10_000)}, timeRange{}, nil},
	} {
		if got := rest(c.inside, c.against, span); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Any first pieces are spread over the whole.
func TestPiecesAreSpread(t *testing.T) {
	r := timeRange{noon, noon.Add(16 * time.Minute)}
	list := pieces([]timeRange{r}, 16)
	if len(list) != 16 {
		t.Fatalf("%d pieces", len(list))
	}
	half := noon.Add(8 * time.Minute)
	for n := 2; n <= 16; n += 2 {
		early := 0
		for _, p := range list[:n] {
			if p.from.Before(half) {
				early++
			}
		}
		if early != n/2 {
			t.Errorf("%d of the first %d are early", early, n)
		}
	}
	var sum time.Duration
	for _, p := range pieces([]timeRange{r, {noon.Add(time.Hour), noon.Add(time.Hour + 30*time.Second)}}, 16) {
		sum += p.to.Sub(p.from)
	}
	if sum != 16*time.Minute+30*time.Second {
		t.Errorf("the pieces are %s", sum)
	}
}
