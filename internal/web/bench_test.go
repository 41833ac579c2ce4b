package web

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// plenty is a history of many endpoints and many requests, which is made as it is
// read.
type plenty struct {
	memory
	endpoints int
	requests  int // an hour
	points    []store.Second
}

func newPlenty(endpoints, requests int) *plenty {
	p := &plenty{endpoints: endpoints, requests: requests}
	p.from, p.to = noon, noon.Add(24*time.Hour)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range endpoints {
		e := observe.Endpoint{Side: "served", NetNS: 1, Addr: "10.0.0.5", Port: 80 + i, Comm: fmt.Sprintf("service-%d", i), PID: i + 1,
			Requests: 57_600, OK: 57_000, Errors: 600, Recorded: 50_000, Segments: 100_000, Retrans: 20, Parts: map[string]observe.PartStats{}}
		for part := range observe.NumParts {
			s := observe.PartStats{}
			for range 2000 {
				s.Hist.AddN(int64(r.ExpFloat64()*1e6), 25)
			}
			s.SumNS = 57_600 * 1e6
			e.Parts[part.String()] = s
		}
		for range 5000 {
			e.Total.AddN(int64(1e6+r.ExpFloat64()*5e6), 10)
			e.RTT.AddN(int64(1e5+r.ExpFloat64()*1e5), 10)
		}
		p.points = append(p.points, store.Second{Endpoint: e, Process: observe.Identity{Comm: e.Comm}})
	}
	return p
}

func (p *plenty) Points(q store.Query, step time.Duration, f func(*store.Second) bool) error {
	for at := q.From.Unix(); at < q.To.Unix(); at += int64(step / time.Second) {
		for i := range p.points {
			if p.points[i].At = at; !f(&p.points[i]) {
				return nil
			}
		}
	}
	return nil
}

func (p *plenty) Endpoints(store.Query) ([]store.EndpointSum, error) {
	var list []store.EndpointSum
	for i := range p.points {
		list = append(list, store.EndpointSum{Endpoint: p.points[i].Endpoint, Process: p.points[i].Process})
	}
	return list, nil
}

func (p *plenty) Totals(store.Query) (*observe.Histogram, error) { return &observe.Histogram{}, nil }

func (p *plenty) Requests(q store.Query, f func(*store.Request) bool) error {
	each := time.Hour / time.Duration(p.requests)
	r := store.Request{Process: observe.Identity{Comm: "service-0"}}
	r.Side, r.NetNS, r.Local, r.Weight, r.Requests, r.Status = observe.Served, 1, netip.MustParseAddrPort("10.0.0.5:80"), 1, 1, observe.StatusOK
	for at, i := q.From, uint64(0); at.Before(q.To); at, i = at.Add(each), i+1 {
		x := i * 0x9E3779B97F4A7C15 >> 32
		r.StartNS, r.PID, r.Seq = at.UnixNano(), int(x%16)+1, uint32(i)
		r.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(x >> 8 % 4), byte(x)}), 4000)
		r.Ledger[observe.Server], r.Ledger[observe.Network] = int64(x%5_000_000), 200_000
		if !f(&r) {
			return nil
		}
	}
	return nil
}

// What the page asks for first, over a day of 50 endpoints, and what it asks for
// over a million requests. The history itself costs nothing here: these are the
// sums, the statistics and the writing.
func BenchmarkAnswers(b *testing.B) {
	p := newPlenty(50, 1_000_000)
	h := serve(b, p, Options{})
	day := fmt.Sprintf("from=%d&to=%d", noon.Unix(), noon.Add(24*time.Hour).Unix())
	hour := fmt.Sprintf("from=%d&to=%d", noon.Unix(), noon.Add(time.Hour).Unix())
	for _, c := range []struct{ name, target string }{
		{"series of a day", "/api/series?" + day}, {"endpoints of a day", "/api/endpoints?" + day}, {"heat map of a day", "/api/histogram?" + day},
		{"slowest of a million", "/api/requests?" + hour}, {"difference of a million", fmt.Sprintf("/api/difference?from=%d&to=%d&against_from=%d&against_to=%d", noon.Add(10*time.Minute).Unix(), noon.Add(20*time.Minute).Unix(), noon.Unix(), noon.Add(time.Hour).Unix())},
	} {
		b.Run(c.name, func(b *testing.B) {
			var bytes int
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, c.target, nil)
				r.Header.Set("Accept-Encoding", "gzip")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
				bytes = w.Body.Len()
			}
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
}

// A million stored requests of an hour, read from disk.
func BenchmarkAnswersFromDisk(b *testing.B) {
	p := newPlenty(1, 1_000_000)
	dir := b.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	hour := timeRange{noon, noon.Add(time.Hour)}
	seconds := map[int64]*store.Second{}
	p.Requests(store.Query{From: hour.from, To: hour.to}, func(r *store.Request) bool {
		s.AddRequest(r)
		at := r.StartNS / 1e9
		if seconds[at] == nil {
			seconds[at] = &store.Second{}
			if at%5 == 0 { // as a recorder does each second
				if err := s.Sync(); err != nil {
					b.Fatal(err)
				}
			}
		}
		second(at, seconds[at], r)
		return true
	})
	for at := noon.Unix(); at < hour.to.Unix(); at++ {
		if sec := seconds[at]; sec != nil {
			s.AddSecond(sec)
		}
		if at%60 == 0 {
			if err := s.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	r, err := store.OpenReader(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	h := serve(b, r, Options{})
	span := fmt.Sprintf("from=%d&to=%d", hour.from.Unix(), hour.to.Unix())
	for _, c := range []struct{ name, target string }{
		{"series", "/api/series?" + span}, {"endpoints", "/api/endpoints?" + span}, {"quantiles", "/api/histogram?" + span}, {"slowest", "/api/requests?" + span},
		{"latest", "/api/requests?sort=time&" + span}, {"failed", "/api/requests?status=error&" + span},
		{"difference", fmt.Sprintf("/api/difference?from=%d&to=%d&against_from=%d&against_to=%d", noon.Add(10*time.Minute).Unix(), noon.Add(20*time.Minute).Unix(), noon.Unix(), noon.Add(time.Hour).Unix())},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if w := get(b, h, c.target); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
