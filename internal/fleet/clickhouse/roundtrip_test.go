package clickhouse

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/store"
)

// engines are the real servers of both dialects.
func engines(t *testing.T, f func(t *testing.T, db *DB)) {
	for name, start := range map[string]func(t *testing.T) string{
		"plain": func(t *testing.T) string {
			return clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2}).URL("slowray") + "&compress=lz4"
		},
		"modern": func(t *testing.T) string { return clickhousetest.ModernForTest(t).URL("slowray") },
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			initAll(t, url, &Retention{7})
			db, err := Open(url)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			f(t, db)
		})
	}
}

// hostile are texts that must come back as they were.
var hostile = []string{"", "'; DROP TABLE requests; --", "a\\'b\\", "tab\tnew\nline\r\x00nul", "\x1b[31mred", "<script>alert(1)</script>", "ünïcödé 漢字", "\xff\xfe no UTF-8", strings.Repeat("x", 300), "`backtick` \"quote\"", "${jndi}", "%s%n"}

// extreme are requests with the greatest values a column takes.
func extreme(at time.Time) []store.Request {
	var list []store.Request
	for i, text := range hostile {
		r := store.Request{Why: store.Why(i % 3)}
		r.Side = observe.Side(1 + i%2)
		r.StartNS = at.Add(time.Duration(i) * time.Second).UnixNano()
		r.Local, r.Peer = netip.MustParseAddrPort("[2001:db8::1]:65535"), netip.MustParseAddrPort("10.0.0.1:1")
		if i == 3 {
			r.Local, r.Peer = netip.AddrPort{}, netip.AddrPort{}
		}
		r.NetNS, r.PID, r.TID = math.MaxInt64, math.MaxInt32, -1
		r.Seq, r.Requests, r.Weight, r.Unacked, r.Retrans, r.MSS = math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32
		r.BytesIn, r.BytesOut = math.MaxInt64, uint64(i)
		r.RTTNS, r.MinRTTNS, r.FirstByte = 1e15, 2e15, 3e15
		r.Status, r.HTTP, r.Followed = observe.Status(i%3), 599, i%2 == 0
		r.Flags = observe.FlagOverlapped | observe.FlagTimeout
		r.Label = text
		if i > 0 {
			r.Trace = observe.Trace{ID: [16]byte{0xab, 0xcd, 0xef, 0, 15: byte(i)}, Parent: [8]byte{byte(i)}, Flags: 255}
		}
		r.Process.Comm, r.Process.Cgroup, r.Process.Container, r.Process.ContainerName, r.Process.Unit = text, text+"1", text+"2", text+"3", text+"4"
		for p := range r.Ledger {
			r.Ledger[p] = int64(p+i) * 1e13
		}
		for p := range r.Split {
			r.Split[p] = int64(p+i) * 1e12
		}
		list = append(list, r)
	}
	return list
}

func TestRequestsComeBackAsTheyWere(t *testing.T) {
	engines(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		want := map[string][]store.Request{}
		for i := range 4 {
			h := hostNumber(i)
			h.Name += "'\\\n" // also a host may call itself anything
			list := newTraffic(uint64(i)).requests(500, noon.Add(time.Duration(i)*time.Microsecond))
			list = append(list, extreme(noon.Add(time.Hour+time.Duration(i)*time.Millisecond))...)
			want[h.Name] = list
			if err := db.Hello(ctx, h, noon); err != nil {
				t.Fatal(err)
			}
			for from := 0; from < len(list); from += 200 {
				part := list[from:min(from+200, len(list))]
				if err := db.Send(ctx, requestBatch(h, fleet.Position(1000+from), part)); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := db.Mark(ctx, h, fleet.Requests); err != nil || got != fleet.Position(1000+len(list)-1) {
				t.Fatalf("mark %d, %v", got, err)
			}
		}
		got := map[string][]store.Request{}
		last := int64(0)
		if err := db.Requests(ctx, fleet.Question{}, func(host string, r *store.Request) bool {
			if r.StartNS < last {
				t.Errorf("%d after %d", r.StartNS, last)
			}
			last = r.StartNS
			got[host] = append(got[host], *r)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		for trace, most := range map[observe.TraceMatch]int{"abcdef00000000000000000000000003": 4, "abcdef00": 4 * (len(hostile) - 1), "abcdef01": 0} {
			n := 0
			if err := db.Requests(ctx, fleet.Question{Trace: trace}, func(_ string, r *store.Request) bool {
				if n++; !trace.Has(&r.Trace) {
					t.Errorf("%s: a request of trace %x", trace, r.Trace.ID)
				}
				return true
			}); err != nil || n != most {
				t.Errorf("%s: %d requests, %v, want %d", trace, n, err, most)
			}
		}
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
			t.Errorf("(-sent +read)\n%.3000s", d)
		}
		// One host, a stretch of time, a service.
		name := hostNumber(2).Name + "'\\\n"
		n := 0
		q := fleet.Question{Host: name, From: noon, To: noon.Add(time.Minute), Service: "docker-3:8003", Side: observe.Served, Port: 8003}
		if err := db.Requests(ctx, q, func(host string, r *store.Request) bool {
			if host != name || r.Local.Port() != 8003 {
				t.Errorf("%q %v", host, r.Local)
			}
			n++
			return n < 5
		}); err != nil || n != 5 {
			t.Errorf("%d requests, %v", n, err)
		}
		for _, most := range []int{1, 60, 700} { // over several minutes
			n = 0
			var last store.Request
			if err := db.Requests(ctx, fleet.Question{Host: name, Most: most}, func(_ string, r *store.Request) bool {
				n++
				last = *r
				return true
			}); err != nil || n != min(most, len(want[name])) || last.StartNS != want[name][n-1].StartNS {
				t.Errorf("%d requests of at most %d, %v", n, most, err)
			}
		}
		for _, text := range hostile {
			if err := db.Requests(ctx, fleet.Question{Host: text + "?", Service: text + "!"}, func(string, *store.Request) bool {
				t.Error("a request of a host that is none")
				return false
			}); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

func TestSecondsComeBackAtEveryStep(t *testing.T) {
	engines(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		const hosts, seconds = 3, 330 // more than two slots of five minutes
		type key struct {
			fleet.Key
			at int64
		}
		want := map[time.Duration]map[key]*fleet.Point{time.Second: {}, 10 * time.Second: {}, 5 * time.Minute: {}}
		hist := map[time.Duration]map[key]*observe.Histogram{time.Second: {}, 10 * time.Second: {}, 5 * time.Minute: {}}
		var whole observe.Histogram
		for i := range hosts {
			h := hostNumber(i)
			tr := newTraffic(uint64(i + 1))
			var list []store.Second
			for at := noon.Unix(); at < noon.Unix()+seconds; at++ {
				by := map[uint16][]store.Request{}
				for _, r := range tr.requests(20, time.Unix(at, 0)) {
					by[r.Local.Port()] = append(by[r.Local.Port()], r)
				}
				for _, requests := range by {
					s := secondOf(at, requests)
					list = append(list, s)
					e := &s.Endpoint
					whole.Merge(&e.Total)
					k := fleet.Key{Host: h.Name, Service: fleet.Service(observe.Served, &s.Process, e.Port), Side: observe.Served, Addr: e.Addr, Port: e.Port}
					for step, points := range want {
						n := int64(step / time.Second)
						kk := key{k, at / n * n}
						p := points[kk]
						if p == nil {
							p = &fleet.Point{Key: k, At: kk.at, Seconds: int(n)}
							points[kk], hist[step][kk] = p, &observe.Histogram{}
						}
						p.Requests, p.Errors = p.Requests+e.Requests, p.Errors+e.Errors+e.Unanswered
						p.Segments, p.Retrans, p.SynAgain = p.Segments+e.Segments, p.Retrans+e.Retrans, p.SynAgain+e.SynRetrans
						if us := e.MinRTT / 1000; p.MinRTTUS == 0 || us < p.MinRTTUS {
							p.MinRTTUS = us
						}
						for part := range observe.NumParts {
							us := e.Parts[part.String()].SumNS / 1000
							p.PartsUS[part] += us
							if part != observe.AckDelay {
								p.TotalUS += us
							}
						}
						for part := range observe.NumServerParts {
							p.SplitUS[part] += e.Split.Parts[part.String()].SumNS / 1000
						}
						hist[step][kk].Merge(&e.Total)
					}
				}
			}
			for from := 0; from < len(list); from += 700 {
				if err := db.Send(ctx, secondBatch(h, fleet.Position(1+from), list[from:min(from+700, len(list))])); err != nil {
					t.Fatal(err)
				}
			}
		}
		for step, points := range want {
			last, n := int64(0), 0
			if err := db.Points(ctx, fleet.Question{From: noon, To: noon.Add(time.Hour)}, step, func(p *fleet.Point) bool {
				if p.At < last {
					t.Errorf("%s: %d after %d", step, p.At, last)
				}
				last = p.At
				n++
				k := key{p.Key, p.At}
				w := points[k]
				if w == nil {
					t.Fatalf("%s: a point that was not sent: %+v", step, p)
				}
				w.P50US, w.P99US = schema.RoundMicros(hist[step][k].Quantile(0.5)), schema.RoundMicros(hist[step][k].Quantile(0.99))
				if d := cmp.Diff(w, p); d != "" {
					t.Fatalf("%s (-sent +read)\n%s", step, d)
				}
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if n != len(points) {
				t.Errorf("%s: %d points, want %d", step, n, len(points))
			}
		}
		times, err := db.Quantiles(ctx, fleet.Question{From: noon.Add(-7 * time.Second), To: noon.Add(seconds*time.Second + time.Second)}, []float64{0.5, 0.99})
		if err != nil || len(times) != 8 {
			t.Fatalf("%d services, %v", len(times), err)
		}
		var n uint64
		for _, s := range times {
			n += s.Requests
			if s.Hosts != hosts || s.Side != observe.Served {
				t.Errorf("%+v", s)
			}
		}
		if n != hosts*seconds*20 {
			t.Errorf("%d requests, want %d", n, hosts*seconds*20)
		}
		one, err := db.Quantiles(ctx, fleet.Question{From: noon, To: noon.Add(time.Hour), Service: "docker-0:8000"}, []float64{0.5, 0.99})
		if err != nil || len(one) != 1 {
			t.Fatalf("%+v, %v", one, err)
		}
		var h observe.Histogram
		for k, of := range hist[time.Second] {
			if k.Service == "docker-0:8000" {
				h.Merge(of)
			}
		}
		for i, q := range []float64{0.5, 0.99} {
			if want := schema.RoundMicros(h.Quantile(q)); one[0].QuantilesUS[i] != want {
				t.Errorf("quantile %g is %d, want %d", q, one[0].QuantilesUS[i], want)
			}
		}
	})
}

func TestFindingsAndHostsComeBack(t *testing.T) {
	engines(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		h := hostNumber(1)
		var want []fleet.HostFinding
		var list []store.Finding
		for i, text := range hostile {
			f := findingAt(noon.Add(time.Duration(i)*10*time.Second), text)
			list = append(list, f)
			want = append(want, fleet.HostFinding{Host: h.Name, Finding: f})
		}
		b := batchOf(h, fleet.Findings, 5, len(list), noon)
		b.Findings = numbered(5, list)
		if err := db.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
		if got, err := db.Mark(ctx, h, fleet.Findings); err != nil || got != fleet.Position(5+len(list)-1) {
			t.Fatalf("mark %d, %v", got, err)
		}
		got, err := db.Findings(ctx, fleet.Question{From: noon, To: noon.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		// JSON has no bytes that are no UTF-8.
		for i := range want {
			for _, s := range []*string{&want[i].Title, &want[i].Impact.Text, &want[i].Subject.Comm} {
				*s = strings.ToValidUTF8(*s, "\ufffd\ufffd")
			}
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(cause.Finding{})); d != "" {
			t.Errorf("(-sent +read)\n%s", d)
		}
		if got, err = db.Findings(ctx, fleet.Question{From: noon.Add(15 * time.Second), To: noon.Add(20 * time.Second), Service: "any"}); err != nil || len(got) != 1 {
			t.Errorf("%d findings overlap, want 1 (%v)", len(got), err)
		}

		hosts := []*fleet.Host{hostNumber(1), hostNumber(2), {Name: hostile[3], ID: "x", Labels: map[string]string{hostile[1]: hostile[2]}}}
		for i, h := range hosts {
			if err := db.Hello(ctx, h, noon.Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
			h.Version = "newer"
			if err := db.Hello(ctx, h, noon.Add(time.Duration(i)*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		seen, err := db.Hosts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wantHosts := []fleet.HostSeen{{Host: *hosts[0], Last: noon}, {Host: *hosts[1], Last: noon.Add(time.Second)}, {Host: *hosts[2], Last: noon.Add(2 * time.Second)}}
		if d := cmp.Diff(wantHosts, seen); d != "" {
			t.Errorf("(-said +read)\n%s", d)
		}
	})
}
