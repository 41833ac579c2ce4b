package request

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/observe"
)

var start = time.Unix(1_700_000_000, 0)

// requests draws requests of a few endpoints and peers, each with a number of
// its own so that they can be distinguished.
func requests() *rapid.Generator[[]observe.Request] {
	one := rapid.Custom(func(t *rapid.T) observe.Request {
		local := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 2).Draw(t, "local"))}), uint16(rapid.IntRange(80, 81).Draw(t, "port")))
		peer := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(rapid.IntRange(1, 40).Draw(t, "peer"))}), uint16(rapid.IntRange(1, 3).Draw(t, "peer port")))
		r := observe.Request{
			Side: observe.Side(rapid.IntRange(1, 2).Draw(t, "side")), NetNS: 1, Local: local, Peer: peer,
			StartNS:  start.UnixNano() + rapid.Int64Range(-1e9, 10e9).Draw(t, "start"),
			PID:      rapid.IntRange(1, 4).Draw(t, "pid"),
			Requests: 1, Weight: uint32(rapid.SampledFrom([]int{0, 1, 1, 16}).Draw(t, "weight")),
			BytesIn: rapid.Uint64Range(0, 1e6).Draw(t, "in"), BytesOut: rapid.Uint64Range(0, 1e6).Draw(t, "out"),
			Retrans: rapid.Uint32Range(0, 3).Draw(t, "retrans"), RTTNS: rapid.Int64Range(0, 1e8).Draw(t, "rtt"),
			MinRTTNS: rapid.Int64Range(0, 1e8).Draw(t, "min rtt"), MSS: 1448,
			Status: observe.Status(rapid.IntRange(0, 2).Draw(t, "status")), HTTP: rapid.SampledFrom([]int{0, 200, 404, 503}).Draw(t, "http"),
			Flags: observe.RequestFlags(rapid.Uint32Range(0, 1<<17-1).Draw(t, "flags")) &^ observe.FlagUnfinished,
		}
		if r.Side == observe.Called {
			r.Local, r.Peer = r.Peer, r.Local
		}
		if r.Flags&observe.FlagOverlapped != 0 {
			r.Requests = rapid.Uint32Range(1, 9).Draw(t, "overlapped")
		}
		for p := range r.Ledger {
			if rapid.Bool().Draw(t, "part") {
				r.Ledger[p] = rapid.Int64Range(0, 1<<rapid.IntRange(0, 35).Draw(t, "bits")).Draw(t, "ns")
			}
		}
		return r
	})
	return rapid.Custom(func(t *rapid.T) []observe.Request {
		list := rapid.SliceOfN(one, 0, 120).Draw(t, "requests")
		for i := range list {
			list[i].Seq = uint32(i + 1)
		}
		return list
	})
}

// even folds pids 1 and 2, and 3 and 4.
func even(pid int) (int, string) { return (pid + 1) / 2 * 2, fmt.Sprint("program ", (pid+1)/2) }

func tableOf(list []observe.Request) *Table {
	t := NewTable(start)
	t.Master = even
	for i := range list {
		t.Add(&list[i])
	}
	return t
}

func dump(t *Table) string {
	b, err := json.MarshalIndent(t.Endpoints(start.Add(10*time.Second), nil), "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestTableOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := requests().Draw(t, "list")
		shuffled := rapid.Permutation(list).Draw(t, "shuffled")
		if d := cmp.Diff(dump(tableOf(list)), dump(tableOf(shuffled))); d != "" {
			t.Fatal(d)
		}
	})
}

func TestTableMergeEqualsAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := requests().Draw(t, "list")
		cut := rapid.IntRange(0, len(list)).Draw(t, "cut")
		merged := tableOf(list[:cut])
		merged.Merge(tableOf(list[cut:]))
		if d := cmp.Diff(dump(tableOf(list)), dump(merged)); d != "" {
			t.Fatal(d)
		}
	})
}

func TestTableResetForgetsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, list := requests().Draw(t, "before"), requests().Draw(t, "list")
		table := tableOf(before)
		table.Reset(start)
		for i := range list {
			table.Add(&list[i])
		}
		got, want := table.Endpoints(start, nil), tableOf(list).Endpoints(start, nil)
		// An endpoint used before stays, with nothing in it, and remembers its processes.
		got = slices.DeleteFunc(got, func(e observe.Endpoint) bool { return e.Recorded == 0 })
		for _, e := range [][]observe.Endpoint{got, want} {
			for i := range e {
				e[i].PIDs = nil
			}
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if d := cmp.Diff(string(b), string(a)); d != "" {
			t.Fatal(d)
		}
	})
}

// TestTableSums compares with sums made the simple way.
func TestTableSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := requests().Draw(t, "list")
		var requests, weights, errors, unanswered, slow uint64
		var total, parts int64
		for _, r := range list {
			w := max(r.Weight, 1)
			requests += uint64(w * r.Requests)
			weights += uint64(w)
			switch {
			case r.Flags&observe.FlagUnanswered != 0: // whatever its status
				unanswered += uint64(w * r.Requests)
			case r.Status == observe.StatusError:
				errors += uint64(w * r.Requests)
			}
			total += r.TotalNS() * int64(w)
		}
		var got struct{ requests, weights, errors, unanswered uint64 }
		for _, e := range tableOf(list).Endpoints(start.Add(time.Second), nil) {
			got.requests += e.Requests
			got.errors += e.Errors
			got.unanswered += e.Unanswered
			got.weights += e.Total.Count()
			for p, s := range e.Parts {
				if p != observe.AckDelay.String() {
					parts += s.SumNS
				}
				if s.Hist.Count() != e.Total.Count() {
					t.Fatalf("%s: %d values of %s, %d totals", e.Addr, s.Hist.Count(), p, e.Total.Count())
				}
			}
			slow += e.SlowCount
			if want := min(max(e.Total.Count()/100, 10), e.Total.Count()); e.SlowCount != want {
				t.Fatalf("slowest %d of %d, want %d", e.SlowCount, e.Total.Count(), want)
			}
			var peers uint64
			for _, p := range e.Peers {
				peers += p.Requests
			}
			if len(e.Peers) < topPeers && peers != e.Requests {
				t.Fatalf("peers have %d requests of %d", peers, e.Requests)
			}
		}
		if got.requests != requests || got.weights != weights || got.errors != errors || got.unanswered != unanswered || parts != total {
			t.Fatalf("got %+v and %d ns, want %d %d %d %d and %d ns", got, parts, requests, weights, errors, unanswered, total)
		}
	})
}

func request(peer string, total time.Duration) *observe.Request {
	return &observe.Request{
		Side: observe.Served, StartNS: start.UnixNano() + 1, Local: netip.MustParseAddrPort("10.0.0.1:80"),
		Peer: netip.MustParseAddrPort(peer), PID: 7, Seq: 2, Requests: 1, Weight: 1,
		Ledger: observe.Ledger{observe.Server: int64(total)}, BytesOut: 100, MSS: 1448, Status: observe.StatusOK,
	}
}

func TestTableSlowestAndFailed(t *testing.T) {
	table := NewTable(start)
	for i := range 1000 {
		r := request("10.0.0.2:1000", time.Duration(i)*time.Millisecond)
		r.Seq, r.StartNS = uint32(i), r.StartNS-r.TotalNS()
		r.Label = strings.Repeat("x", 1000)
		if i%10 == 0 {
			r.Status = observe.StatusError
		}
		table.Add(r)
	}
	e := table.Endpoints(start, nil)[0]
	if len(e.Slowest) != 20 || len(e.Failed) != 20 {
		t.Fatalf("%d slowest, %d failed", len(e.Slowest), len(e.Failed))
	}
	for i, s := range e.Slowest {
		if s.TotalNS != int64(999-i)*1e6 || s.Parts["server"] != s.TotalNS || len(s.Label) != maxLabel {
			t.Errorf("slowest %d: %+v", i, s)
		}
	}
	if e.SlowCount != 10 {
		t.Errorf("slowest hundredth: %d", e.SlowCount)
	}
	// 990 to 999 ms; one row is an eighth of a power of two wide.
	if got := time.Duration(e.SlowParts["server"]); got < 9200*time.Millisecond || got > 9950*time.Millisecond {
		t.Errorf("slowest hundredth took %s", got)
	}
}

func TestTableSlowPartsTellTheTail(t *testing.T) {
	table := NewTable(start)
	for i := range 10_000 {
		r := request("10.0.0.2:1000", time.Millisecond)
		if i%200 == 0 { // half of the slowest hundredth
			r.Ledger[observe.Retrans] = 200e6
		}
		table.Add(r)
	}
	e := table.Endpoints(start, nil)[0]
	if e.SlowCount != 100 || e.SlowParts["retrans"] != 50*200e6 || e.SlowParts["server"] != 100*1e6 {
		t.Errorf("%d slow: %v", e.SlowCount, e.SlowParts)
	}
}

func TestTableBoundsEndpoints(t *testing.T) {
	table := NewTable(start)
	const n = maxEndpoints + 500
	for i := range n {
		r := request("10.0.0.2:1000", time.Millisecond)
		r.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		table.Add(r)
		table.Add(r)
	}
	var c []Counters
	for i := range n {
		c = append(c, Counters{Side: observe.Served, Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Port: 80, Requests: 3})
	}
	for _, counters := range [][]Counters{nil, c} {
		endpoints := table.Endpoints(start, counters)
		if len(endpoints) != maxEndpoints+1 {
			t.Fatalf("%d endpoints", len(endpoints))
		}
		rest := endpoints[len(endpoints)-1]
		want := uint64(1000)
		if counters != nil {
			want = 1500
		}
		if rest.Addr != Other || rest.Requests != want || rest.Recorded != 1000 {
			t.Errorf("rest: %s, %d requests, %d recorded", rest.Addr, rest.Requests, rest.Recorded)
		}
	}
}

func TestTableFoldsProcesses(t *testing.T) {
	table := NewTable(start)
	asked := 0
	table.Master = func(pid int) (int, string) { asked++; return 100, "nginx" }
	for i := range 300 {
		r := request("10.0.0.2:1000", time.Millisecond)
		r.PID = 101 + i%100
		table.Add(r)
	}
	unread := request("10.0.0.3:1000", 2*time.Millisecond)
	unread.PID, unread.Flags = 0, observe.FlagUnanswered
	table.Add(unread)
	endpoints := table.Endpoints(start, nil)
	if len(endpoints) != 1 || asked != 100 {
		t.Fatalf("%d endpoints, asked %d times", len(endpoints), asked)
	}
	e := endpoints[0]
	if e.PID != 100 || e.Comm != "nginx" || e.Requests != 301 || e.Unanswered != 1 || len(e.PIDs) != maxPIDs || e.PIDs[0] != 101 || e.PIDs[63] != 164 {
		t.Errorf("pid %d %q, %d requests, %d unanswered, processes %v", e.PID, e.Comm, e.Requests, e.Unanswered, e.PIDs)
	}
	if len(table.Endpoints(start, nil)) != 1 || table.sums[key{addr: netip.MustParseAddr("10.0.0.1"), port: 80, side: 1}] == nil {
		t.Error("looking changed the table")
	}
}

func TestTableManyPeers(t *testing.T) {
	table := NewTable(start)
	const n = 100_000
	for i := range n {
		r := request("10.0.0.2:1000", time.Millisecond)
		r.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2 + byte(i>>16), byte(i >> 8), byte(i)}), 1000)
		if i%20 == 0 { // five in a hundred from one address
			r.Peer = netip.MustParseAddrPort("192.0.2.1:1000")
		}
		table.Add(r)
	}
	e := table.Endpoints(start, nil)[0]
	if len(e.Peers) != topPeers || e.Peers[0].Addr != "192.0.2.1" {
		t.Fatalf("peers %+v", e.Peers)
	}
	if got := e.Peers[0].Requests; got > n/20 || got < n/20*9/10 {
		t.Errorf("%d requests of the main peer, want %d at most and hardly less", got, n/20)
	}
	if got := len(table.lastSum.peers.list); got > maxPeers {
		t.Errorf("%d peers kept", got)
	}
}

func TestTableCounters(t *testing.T) {
	table := NewTable(start)
	for i := range 30 {
		r := request("10.0.0.2:1000", time.Millisecond)
		r.PID = 1 + i/10/2 // 20 of process 1, 10 of process 2
		if i == 0 {
			r.Retrans = 1
		}
		table.Add(r)
	}
	local := netip.MustParseAddr("::ffff:10.0.0.1") // as a socket of both families tells it
	c := Counters{
		Side: observe.Served, Addr: local, Port: 80, Requests: 100, OK: 100, Segments: 301, Retrans: 7,
		Connections: 5, SynRetrans: 2, PartNS: observe.Ledger{observe.Server: 100e6 + 1, observe.Network: 9},
	}
	idle := Counters{Side: observe.Called, Addr: netip.MustParseAddr("10.0.0.9"), Port: 3306, Connections: 3, Handshake: 30, HandshakeMax: 20}
	endpoints := table.Endpoints(start, []Counters{c, idle})
	if len(endpoints) != 3 {
		t.Fatalf("%d endpoints", len(endpoints))
	}
	a, b := endpoints[0], endpoints[1]
	if a.Requests+b.Requests != 100 || a.Requests != 66 || a.Segments+b.Segments != 301 || a.Retrans != 7 || a.Connections+b.Connections != 5 || a.SynRetrans+b.SynRetrans != 2 {
		t.Errorf("shares: %+v\n%+v", a, b)
	}
	if a.Parts["server"].SumNS+b.Parts["server"].SumNS != 100e6+1 || a.Parts["network"].SumNS+b.Parts["network"].SumNS != 9 {
		t.Errorf("parts: %+v\n%+v", a.Parts, b.Parts)
	}
	if d := endpoints[2]; d.Side != "called" || d.Addr != "10.0.0.9" || d.Port != 3306 || d.Connections != 3 || d.Handshake != 30 || d.HandshakeMax != 20 {
		t.Errorf("without records: %+v", d)
	}
}

func TestApportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "n")
		weights := rapid.SliceOfN(rapid.Uint64Range(0, 1<<40), n, n).Draw(t, "weights")
		others := rapid.SliceOfN(rapid.Uint64Range(0, 1<<40), n, n).Draw(t, "others")
		total := rapid.Uint64().Draw(t, "total")
		var sum uint64
		for _, part := range apportion(total, weights, others) {
			sum += part
		}
		if sum != total {
			t.Fatalf("parts add up to %d of %d", sum, total)
		}
	})
}

func TestSince(t *testing.T) {
	a := Counters{Side: observe.Served, Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Requests: 5, BytesIn: 10, HandshakeMax: 3, PartNS: observe.Ledger{5}}
	idle := Counters{Side: observe.Served, Addr: netip.MustParseAddr("10.0.0.2"), Port: 80, Requests: 5, HandshakeMax: 4}
	anew := Counters{Side: observe.Called, Addr: netip.MustParseAddr("10.0.0.2"), Port: 80, Requests: 2}
	grown := a
	grown.Requests, grown.PartNS[0] = 8, 7
	want := []Counters{{Side: a.Side, Addr: a.Addr, Port: 80, Requests: 3, HandshakeMax: 3, PartNS: observe.Ledger{2}}, anew}
	got := Since([]Counters{a, idle}, []Counters{grown, idle, anew})
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	again := a
	again.Requests = 1
	if got := Since([]Counters{a}, []Counters{again}); !slices.Equal(got, []Counters{again}) {
		t.Errorf("counted anew: %+v", got)
	}
}

func TestTableUnfinished(t *testing.T) {
	table := NewTable(start)
	table.Add(request("10.0.0.2:1000", time.Millisecond))
	open := request("10.0.0.2:1001", 3*time.Second)
	open.Flags = observe.FlagUnfinished
	for range 3 { // reported each second
		table.Add(open)
	}
	e := table.Endpoints(start, nil)[0]
	if e.Unfinished != 1 || e.Requests != 1 || e.Total.Count() != 1 || e.Flags["unfinished"] != 1 {
		t.Errorf("%d unfinished, %d requests, %v", e.Unfinished, e.Requests, e.Flags)
	}
	if len(e.Slowest) != 2 || e.Slowest[0].TotalNS != 3e9 || !slices.Contains(e.Slowest[0].Flags, "unfinished") {
		t.Errorf("slowest: %+v", e.Slowest)
	}
	table.Add(request("10.0.0.2:1001", 4*time.Second))
	e = table.Endpoints(start, nil)[0]
	if e.Unfinished != 0 || e.Requests != 2 || e.Slowest[0].TotalNS != 4e9 {
		t.Errorf("%d unfinished, %d requests after it ended", e.Unfinished, e.Requests)
	}
}

// TestTableUnfinishedStreams: a connection of HTTP/2 has several requests under
// way, each of which ends by itself; how the server's time of a few others was
// split says nothing of them.
func TestTableUnfinishedStreams(t *testing.T) {
	table := NewTable(start)
	stream := func(seq uint32, flags observe.RequestFlags) {
		table.Add(&observe.Request{Side: observe.Served, Local: netip.MustParseAddrPort("10.0.0.1:80"), Peer: netip.MustParseAddrPort("10.0.0.9:4000"),
			StartNS: start.UnixNano(), Seq: seq, Requests: 1, Weight: 1, Flags: flags | observe.FlagMultiplexed, Ledger: observe.Ledger{observe.Server: 2e9}})
	}
	for seq := range uint32(3) {
		stream(seq+1, observe.FlagUnfinished)
	}
	stream(2, 0)
	table.Add(&observe.Request{Side: observe.Served, Local: netip.MustParseAddrPort("10.0.0.1:80"), Peer: netip.MustParseAddrPort("10.0.0.9:4001"),
		StartNS: start.UnixNano(), Seq: 1, Requests: 1, Weight: 1, Followed: true, Ledger: observe.Ledger{observe.Server: 1e6}, Split: observe.ServerSplit{observe.ServerCPU: 1e6}})
	got := table.Endpoints(start.Add(3*time.Second), nil)
	if len(got) != 1 || got[0].Unfinished != 2 || got[0].Requests != 2 || got[0].Split != nil {
		t.Errorf("two of three streams last and one is over: %+v", got)
	}
}

func TestRolling(t *testing.T) {
	rolling := NewRolling(3, start, nil)
	at := start
	for second := range 10 {
		for range second + 1 {
			r := request("10.0.0.2:1000", time.Millisecond)
			r.StartNS = at.UnixNano() + 250e6
			rolling.Add(r)
		}
		if second == 4 {
			open := request("10.0.0.2:1001", 2*time.Second)
			open.Flags, open.StartNS = observe.FlagUnfinished, at.UnixNano()-2e9
			rolling.Add(open)
		}
		end := at.Add(time.Second)
		e := rolling.Endpoints(end, nil)[0]
		want, kept := 0, min(second+1, 3)
		for back := range kept {
			want += second + 1 - back
		}
		if e.Requests != uint64(want) || e.Total.Count() != uint64(want) || e.Peers[0].Requests != uint64(want) {
			t.Errorf("second %d: %d requests, want %d", second, e.Requests, want)
		}
		if got := e.Arrivals[len(e.Arrivals)-10+2]; len(e.Arrivals) != kept*10 || got != uint32(second+1) {
			t.Errorf("second %d: arrivals %v", second, e.Arrivals)
		}
		if (e.Unfinished == 1) != (second >= 4 && second <= 6) {
			t.Errorf("second %d: %d unfinished", second, e.Unfinished)
		}
		at = end
		rolling.Next(at)
	}
}

// steady is a busy host: a few endpoints, processes and hundreds of clients.
func steady() []observe.Request {
	var list []observe.Request
	for i := range 4096 {
		r := request("10.0.0.2:1000", time.Duration(200+i%1500)*time.Microsecond)
		r.Local = netip.AddrPortFrom(r.Local.Addr(), uint16(80+i%4))
		r.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 3, 0, byte(i % 251)}), uint16(i))
		r.PID = 100 + i%16
		r.StartNS += int64(i) * 1e6
		r.Ledger[observe.Network] = int64(40+i%20) * 1e3
		r.Ledger[observe.RecvWait] = int64(3+i%20) * 1e3
		r.RTTNS, r.MinRTTNS, r.HTTP = 50e3, 40e3, 200
		if i%7 == 0 {
			r.Status = observe.StatusError
		}
		r.Label = "GET /index.html"
		list = append(list, *r)
	}
	return list
}

func TestTableAddAllocatesNothing(t *testing.T) {
	list := steady()
	table := tableOf(list)
	i := 0
	if n := testing.AllocsPerRun(20*len(list), func() {
		table.Add(&list[i%len(list)])
		i++
	}); n != 0 {
		t.Errorf("%g allocations per request", n)
	}
	many := NewTable(start)
	for i := range list { // more peers than are kept
		list[i].Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 4, byte(i >> 8), byte(i)}), 1)
		many.Add(&list[i])
	}
	if n := testing.AllocsPerRun(20*len(list), func() {
		many.Add(&list[i%len(list)])
		i++
	}); n != 0 {
		t.Errorf("%g allocations per request of many peers", n)
	}
}

func BenchmarkTableAdd(b *testing.B) {
	for _, peers := range []string{"251 peers", "4096 peers"} {
		b.Run(peers, func(b *testing.B) {
			list := steady()
			for i := range list {
				if peers == "4096 peers" {
					list[i].Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 4, byte(i >> 8), byte(i)}), 1)
				}
			}
			table := tableOf(list)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Add(&list[i%len(list)])
			}
		})
	}
}

func BenchmarkRollingEndpoints(b *testing.B) {
	list := steady()
	rolling := NewRolling(10, start, even)
	for s := range 10 {
		for i := range list {
			rolling.Add(&list[i])
		}
		rolling.Next(start.Add(time.Duration(s) * time.Second))
	}
	b.ReportAllocs()
	for b.Loop() {
		rolling.Endpoints(start.Add(10*time.Second), nil)
	}
}
