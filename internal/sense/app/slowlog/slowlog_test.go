package slowlog

import (
	"net/netip"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

func TestNormalise(t *testing.T) {
	for in, want := range map[string]string{
		"SELECT * FROM b WHERE id = 5 AND g='it''s'":            "SELECT * FROM b WHERE id = ? AND g=?",
		"select  a\n\tfrom `t1` /* who */ where x in (1,2, 3);": "select a from `t1` where x in (?)",
		"INSERT INTO t VALUES (1,'a'),(2,'b\\'c')":              "INSERT INTO t VALUES (?)",
		"SELECT 0x1f, 1.5e-3, .5, t2.c":                         "SELECT ?, t2.c",
		"SELECT 'never closed":                                  "SELECT ?",
		"-- a remark\nSELECT 1":                                 "SELECT ?",
		"/* never closed":                                       "",
		"\xff'\xfe'":                                            "??",
	} {
		if got := Normalise(in); got != want {
			t.Errorf("Normalise(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("SELECT 'a' FROM t WHERE x = 0x1F -- no")
	f.Fuzz(func(t *testing.T, s string) { Normalise(s) })
}

const ms = int64(1e6)

// Two entries of 1.3 s from the same host: the request of one passed on the
// wire, that of the other in the server (incident E, case 7).
func TestJoinTellsSQLFromNetwork(t *testing.T) {
	app := netip.MustParseAddr("10.1.2.3")
	start := int64(1_700_000_000e9)
	records := []Record{
		{Peer: netip.AddrPortFrom(app, 4000), StartNS: start, TotalNS: 1310 * ms, ServerNS: 3 * ms, NetworkNS: 1307 * ms, Retrans: 3},
		{Peer: netip.AddrPortFrom(app, 4001), StartNS: start, TotalNS: 1301 * ms, ServerNS: 1300 * ms, NetworkNS: ms},
		{Peer: netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), 4000), StartNS: start, TotalNS: 1300 * ms, ServerNS: 1300 * ms},
	}
	entries := []Entry{
		{Statement: "network", EndNS: start + 1309*ms, TookNS: 1308 * ms, Peer: app, PeerPort: 4000},
		{Statement: "sql", EndNS: start + 1e9, SlackNS: 1e9, TookNS: 1299 * ms, Peer: app},
		{Statement: "report", EndNS: start + 1e9, SlackNS: 1e9, TookNS: 1e9}, // by a unix socket: takes what is left over
		{Statement: "later", EndNS: start + 20e9, TookNS: 1e9, Peer: app},
	}
	var log observe.SlowLog
	Sum(&log, entries, records[:2])
	if log.Entries != 4 || log.Joined != 2 || log.Unjoined != 2 {
		t.Fatalf("entries %d, joined %d, unjoined %d", log.Entries, log.Joined, log.Unjoined)
	}
	by := map[string]observe.SlowStatement{}
	for _, s := range log.Statements {
		by[s.Statement] = s
	}
	if s := by["network"]; s.OnWire != 1 || s.Retrans != 3 || s.ServerNS != 3*ms {
		t.Errorf("network: %+v", s)
	}
	if s := by["sql"]; s.OnWire != 0 || s.ServerNS != 1300*ms {
		t.Errorf("sql: %+v", s)
	}
	if got := join(entries[:1], records[2:]); got[0] != -1 {
		t.Errorf("another peer's request was taken")
	}
}
