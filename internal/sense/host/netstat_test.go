package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNetFilesOfFixture(t *testing.T) {
	n := &NetNS{fs: fixture(t, "web-6.18"), fd: -1}
	got, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"TcpExt.SyncookiesSent": 1, "TcpExt.SyncookiesRecv": 2, "TcpExt.ListenOverflows": 3, "TcpExt.ListenDrops": 4,
		"IpExt.InNoRoutes": 5, "IpExt.InTruncatedPkts": 6, "Ip.Forwarding": 2, "Ip.DefaultTTL": 64, "Ip.InReceives": 5445,
		"Tcp.RtoAlgorithm": 1, "Tcp.RtoMin": 200, "Tcp.RtoMax": 120000, "Tcp.ActiveOpens": 10, "Tcp.CurrEstab": 4, "Tcp.RetransSegs": 7,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	stat, err := n.SockStat()
	if err != nil {
		t.Fatal(err)
	}
	wantStat := map[string]int64{"sockets.used": 12, "TCP.inuse": 1, "TCP.orphan": 0, "TCP.tw": 9, "TCP.alloc": 1, "TCP.mem": 4, "TCP6.inuse": 3}
	if d := cmp.Diff(wantStat, stat); d != "" {
		t.Error(d)
	}
	knobs := n.Sysctls([]string{"net.core.somaxconn", "net.ipv4.ip_local_port_range", "net.ipv4.nothing", "../../stat", "", "net"})
	wantKnobs := map[string]string{"net.core.somaxconn": "4096", "net.ipv4.ip_local_port_range": "32768 60999"}
	if d := cmp.Diff(wantKnobs, knobs); d != "" {
		t.Error(d)
	}
}

func TestCountersBetween(t *testing.T) {
	a := map[string]uint64{"Tcp.RetransSegs": 7, "Tcp.CurrEstab": 4, "TcpExt.ListenDrops": 9, "Udp.InErrors": 5}
	b := map[string]uint64{"Tcp.RetransSegs": 10, "Tcp.CurrEstab": 40, "TcpExt.ListenDrops": 3, "TcpExt.New": 8, "Udp.InErrors": 5}
	want := map[string]uint64{"Tcp.RetransSegs": 3, "TcpExt.ListenDrops": 0, "Udp.InErrors": 0}
	if d := cmp.Diff(want, CountersBetween(a, b)); d != "" {
		t.Error(d)
	}
}

func TestParseNetstatMalformed(t *testing.T) {
	m := make(map[string]uint64)
	err := parseNetstat(strings.NewReader("Tcp: A B\nUdp: A\nUdp: 1 2\n\nlonely\nIcmpMsg:\nIcmpMsg:\nX: A B C\nX: 1 zz 3\nTcp: Z"), m)
	if d := cmp.Diff(map[string]uint64{"Udp.A": 1, "X.A": 1, "X.C": 3}, m); d != "" || err != nil {
		t.Error(d, err)
	}
}
