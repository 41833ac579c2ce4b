package observetest

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// Requests are requests for what writes them: one that has all that a request can
// have, each number another one, one that has nothing, and one each of what is
// written in a way of its own.
func Requests() []observe.Request {
	full := observe.Request{
		Side: observe.Served, StartNS: 1_790_000_000_123_456_000, NetNS: 4026531840,
		Local: netip.MustParseAddrPort("10.0.0.1:8080"), Peer: netip.MustParseAddrPort("[2001:db8::1%eth0]:40001"),
		PID: 77, TID: 78, Seq: 3, Requests: 4, Weight: 5, BytesIn: 1 << 40, BytesOut: 1<<41 + 1, Unacked: 6, Retrans: 7,
		RTTNS: 150_000, MinRTTNS: 90_000, MSS: 1448, Status: observe.StatusError, HTTP: 502,
		Flags: observe.FlagTimeout | observe.FlagNagle | 1<<30, Label: "GET /a\tb\u202e,\"c\"", FirstByte: 31_000, Followed: true,
		Opening: observe.Opening{DNS: 2_000, Connect: 32_000, Idle: 8_000},
		Trace:   observe.Trace{ID: [16]byte{0x4b, 15: 0x36}, Parent: [8]byte{7: 0xb7}, Flags: observe.TraceSampled},
	}
	for p := range full.Ledger {
		full.Ledger[p] = int64(p+1) * 1000
	}
	for p := range full.Split {
		full.Split[p] = int64(p+1) * 100_000
	}
	called := observe.Request{
		Side: observe.Called, StartNS: 1_790_000_001_000_000_999, Local: netip.MustParseAddrPort("[::ffff:10.0.0.2]:50000"),
		Peer: netip.MustParseAddrPort("10.0.0.3:5432"), PID: 79, Seq: 1, Requests: 1, Weight: 1, RTTNS: 1, MinRTTNS: 499, Status: observe.StatusOK,
	}
	called.Ledger[observe.Server], called.Ledger[observe.Network] = 1_234_567, 89_501
	overlapped := called
	overlapped.Flags, overlapped.Ledger = observe.FlagOverlapped, observe.Ledger{observe.Unaccounted: 2_000_500}
	return []observe.Request{full, {}, called, overlapped}
}

// Identities are processes for Requests, one for each.
func Identities() []observe.Identity {
	return []observe.Identity{
		{Comm: "mariadbd", Cgroup: "/system.slice/docker-0123.scope", Container: "0123456789ab", ContainerName: "shop-db", Unit: "mariadb.service"},
		{}, {Comm: "=nginx", Unit: "nginx.service"}, {Comm: "php-fpm", ContainerName: "php"},
	}
}

// Seconds are what endpoints did in a second: one that has all, each number another
// one, and one that has next to nothing.
func Seconds() []observe.Endpoint {
	full := observe.Endpoint{
		Side: observe.Called.String(), NetNS: 4026531840, Addr: "10.0.0.1", Port: 8080, PID: 77, Comm: "mariadbd",
		Requests: 101, OK: 102, Errors: 103, Unanswered: 104, Unfinished: 105, Overlapped: 106, Recorded: 107,
		BytesIn: 1 << 40, BytesOut: 1 << 41, Segments: 108, Retrans: 109, MinRTT: 110_000, Connections: 111,
		Handshake: 112_400, HandshakeMax: 113_600, SynRetrans: 114,
		Statuses: map[string]uint64{"1xx": 1, "2xx": 2, "3xx": 3, "4xx": 4, "5xx": 5},
		Flags:    map[string]uint64{"timeout": 6, "reset": 7},
		Parts:    map[string]observe.PartStats{}, Split: &observe.SplitStats{Requests: 115, ServerNS: 116_000, Parts: map[string]observe.PartStats{}},
	}
	stats := func(ns int64) (s observe.PartStats) {
		s.SumNS = 3 * ns
		s.Hist.AddN(ns, 3)
		return s
	}
	full.Total.Add(1_000_000)
	full.Total.AddN(2_000_000, 5)
	full.RTT.AddN(150_000, 2)
	for p := range observe.NumParts {
		full.Parts[p.String()] = stats(int64(p+1) * 10_000)
	}
	for p := range observe.NumServerParts {
		full.Split.Parts[p.String()] = stats(int64(p+1) * 100_000)
	}
	return []observe.Endpoint{full, {Side: observe.Served.String(), Addr: "::1", Connections: 1}}
}
