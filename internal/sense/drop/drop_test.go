package drop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/osthread"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// inNamespace runs a test in a network namespace of its own, which ends with
// its thread, with loopback up.
func inNamespace(t testing.TB, test func(ns *host.NetNS)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	err := osthread.Own(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		run(t, "ip link set lo up")
		ns, err := host.Default().OpenNetNS(unix.Gettid())
		if err != nil {
			return err
		}
		defer ns.Close()
		test(ns)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// run runs a line of the shell in the thread's namespace.
func run(t testing.TB, line string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", line, err, out)
	}
}

func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s", p)
		}
	}
}

// send sends n datagrams to a port of 127.0.0.1. A rule may refuse them.
func send(t testing.TB, port, n int) {
	t.Helper()
	c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	for range n {
		_, _ = c.Write([]byte("hello"))
	}
}

// TestRulesAndDrops: what the rules of all three kinds drop is counted by the
// kernel's word and by their counters, and the rules are read as they were
// written.
func TestRulesAndDrops(t *testing.T) {
	needs(t, "nft", "iptables-nft", "iptables-legacy")
	inNamespace(t, func(ns *host.NetNS) {
		run(t, `nft 'add table inet shop; add chain inet shop in { type filter hook input priority 0; }; add chain inet shop later'`)
		run(t, `nft 'add rule inet shop in jump later; add rule inet shop later udp dport 7001 counter drop; add rule inet shop later udp dport { 7002, 7012 } drop'`)
		run(t, `nft 'add rule inet shop later ip saddr 10.5.0.0/16 iifname "eth*" limit rate over 10/second reject'`)
		run(t, `nft 'add rule inet shop in tcp dport 80 ct state invalid numgen random mod 100 < 5 drop'`)
		run(t, `iptables-nft -A OUTPUT -p udp --dport 7003 -m statistic --mode random --probability 1 -j DROP`)
		run(t, `iptables-legacy -N GUARD; iptables-legacy -A INPUT -s 10.0.0.0/8 -i lo+ -p tcp ! --dport 33 -j GUARD`)
		run(t, `iptables-legacy -A GUARD -m conntrack --ctstate INVALID -j DROP; iptables-legacy -A GUARD -p udp -m multiport --dports 5,7:9 -j REJECT`)
		run(t, `iptables-legacy -A OUTPUT -p udp --dport 7004 -j DROP`)
		w, err := Start()
		if err != nil {
			t.Skip(err)
		}
		defer w.Close()
		before, err := ReadCounts(ns)
		if err != nil {
			t.Error(err)
		}
		for i, port := range []int{7001, 7002, 7003, 7004} {
			send(t, port, 10*(i+1))
		}
		after, err := ReadFirewall(ns, before)
		if err != nil {
			t.Error(err)
		}
		want := map[string]struct {
			packets uint64
			counted bool
			hooks   string
		}{
			"udp dport 7001 counter drop":                                            {10, true, "input"},
			"udp dport { 7002, 7012 } drop":                                          {0, false, "input"},
			"ip saddr 10.5.0.0/16 iifname eth* limit rate over 10/second reject":     {0, false, "input"},
			"tcp dport 80 ct state invalid numgen random mod 100 < 5 drop":           {0, false, "input"},
			"udp dport 7003 -m statistic --mode random --probability 1 counter drop": {30, true, "output"},
			"-A OUTPUT -p udp -m udp --dport 7004 -j DROP":                           {40, true, "output"},
		}
		for _, r := range after.Rules {
			x, ok := want[r.Text]
			if !ok {
				t.Errorf("a rule that nobody wrote: %+v", r)
				continue
			}
			delete(want, r.Text)
			if r.Packets != x.packets || r.Counted != x.counted || strings.Join(r.Hooks, " ") != x.hooks {
				t.Errorf("%q: %d packets, counted %v, hooks %v; want %+v", r.Text, r.Packets, r.Counted, r.Hooks, x)
			}
		}
		for text := range want {
			t.Errorf("rule not read: %s", text)
		}
		checkDrops(t, w, ns)
	})
}

// checkDrops looks at what the kernel said of the same packets.
// TestLongChains: the chains with most rules are counted, of all three kinds, also beyond the
// rules that are looked at.
func TestLongChains(t *testing.T) {
	needs(t, "nft", "iptables-nft", "iptables-legacy")
	inNamespace(t, func(ns *host.NetNS) {
		services := func(n int) string {
			return fmt.Sprintf(`{ echo '*nat'; echo ':KUBE-SERVICES - [0:0]'; echo '-A PREROUTING -j KUBE-SERVICES'; `+
				`seq -f '-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport %%.0f -j RETURN' %d; echo COMMIT; }`, n)
		}
		run(t, `{ echo 'add table inet shop; add chain inet shop banned'; seq -f 'add rule inet shop banned tcp dport %.0f drop' 600; } | nft -f -`)
		run(t, `{ echo 'add chain inet shop short'; seq -f 'add rule inet shop short tcp dport %.0f drop' 300; } | nft -f -`)
		run(t, services(700)+" | iptables-nft-restore")
		run(t, services(maxRules+800)+" | iptables-legacy-restore")
		c, err := ReadCounts(ns)
		if err != nil {
			t.Fatal(err)
		}
		want := []observe.FirewallChain{
			{Backend: "iptables-legacy", Family: "ip", Table: "nat", Chain: "KUBE-SERVICES", Rules: maxRules + 801}, // with the return at its end
			{Backend: "iptables-nft", Family: "ip", Table: "nat", Chain: "KUBE-SERVICES", Rules: 700},
			{Backend: "nft", Family: "inet", Table: "shop", Chain: "banned", Rules: 600},
		}
		if d := cmp.Diff(want, c.Long); d != "" {
			t.Error(d)
		}
		if c.Rules < maxRules+2400 {
			t.Errorf("%d rules", c.Rules)
		}
		if f, err := ReadFirewall(ns, c); err != nil || !cmp.Equal(f.Long, c.Long) || f.All != c.Rules {
			t.Errorf("%+v, %d rules, of %d: %v", f.Long, f.All, c.Rules, err)
		}
	})
}

func checkDrops(t *testing.T, w *Watcher, ns *host.NetNS) {
	t.Helper()
	space := symbol.NewSpace("/proc")
	defer space.Close()
	d, _, err := w.Read(space, func(uint64, int) string { return "lo" }, func(port uint16) bool { return port > 7000 && port < 7010 })
	if err != nil {
		t.Error(err)
	}
	got := map[int]uint64{}
	for _, x := range d.List {
		if x.NetNS != ns.Inode() || x.Kind != "udp" {
			continue
		}
		if d.Reasons && x.Reason != "NETFILTER_DROP" && x.Reason != "NO_SOCKET" {
			t.Errorf("reason %q in %s", x.Reason, x.Location)
		}
		for _, f := range x.Flows {
			if x.Reason != "NO_SOCKET" {
				got[f.DstPort] += f.Segments
			}
		}
	}
	for i, port := range []int{7001, 7002, 7003, 7004} {
		if got[port] != uint64(10*(i+1)) {
			t.Errorf("port %d: the kernel dropped %d, want %d", port, got[port], 10*(i+1))
		}
	}
}

// TestNoTableIsMade: reading makes no table of a firewall, and a namespace
// without one has an empty firewall.
func TestNoTableIsMade(t *testing.T) {
	inNamespace(t, func(ns *host.NetNS) {
		names := func() string {
			list, _ := os.ReadFile("/proc/thread-self/net/ip_tables_names")
			return string(list)
		}
		before := names()
		f, err := ReadFirewall(ns, Counts{})
		if err != nil || len(f.Rules) > 0 {
			t.Errorf("%+v, %v", f, err)
		}
		if now := names(); now != before {
			t.Errorf("tables before %q, after %q", before, now)
		}
	})
}

// TestPath: queues, devices and filters of a namespace, and the other ends of
// veth pairs.
func TestPath(t *testing.T) {
	needs(t, "tc")
	inNamespace(t, func(ns *host.NetNS) {
		run(t, "ip link add v0 mtu 1400 type veth peer name v1 mtu 900; ip link set v0 up; ip link set v1 up")
		run(t, "tc qdisc add dev v0 root handle 7: tbf rate 1mbit burst 2k limit 3k")
		run(t, "ip route add blackhole 10.99.0.0/24")
		a, err := ReadPath(ns)
		if err != nil {
			t.Error(err)
			return
		}
		run(t, "ip addr add 10.98.0.1/24 dev v0; ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:01 dev v0")
		c, err := net.Dial("udp", "10.98.0.2:9")
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for range 40 {
			_, _ = c.Write(make([]byte, 800))
		}
		b, err := ReadPath(ns)
		if err != nil {
			t.Error(err)
		}
		d := PathBetween(a, b)
		var v0 *observe.Link
		for i := range d.Links {
			if d.Links[i].Name == "v0" {
				v0 = &d.Links[i]
			}
		}
		if v0 == nil || v0.MTU != 1400 || v0.Kind != "veth" || !v0.Up {
			t.Errorf("v0: %+v", v0)
		} else if p, ok := d.PeerOf(v0.Index); !ok || p.NSID >= 0 {
			t.Errorf("the other end of v0: %+v", p)
		}
		found := false
		for _, q := range d.Qdiscs {
			if q.Interface == "v0" && q.Kind == "tbf" {
				found = q.Drops > 20 && q.RateBits == 1_000_000 && q.Handle == "7:" && q.Parent == "root"
			}
		}
		if !found {
			t.Errorf("no shaper that dropped: %+v", d.Qdiscs)
		}
		routes, err := DeadEnds(ns)
		if err != nil || len(routes) != 1 || routes[0].Kind != "blackhole" || routes[0].Dst != "10.99.0.0/24" {
			t.Errorf("routes %+v, %v", routes, err)
		}
	})
}

func TestParseCounters(t *testing.T) {
	got := map[string]uint64{}
	parseCounters("entries  allocs table_fulls\n0000000a 00000010 00000002\n0000000a 00000001 00000003\n", "Arp.", got)
	parseCounters("XfrmInNoPols          \t4\nXfrmOutError 1\nbroken\n", "Xfrm.", got)
	parseCounters("", "Ip6.", got)
	want := map[string]uint64{"Arp.allocs": 17, "Arp.table_fulls": 5, "Xfrm.InNoPols": 4, "Xfrm.OutError": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// BenchmarkReadCounts reads the counters of 2,000 rules.
func BenchmarkReadCounts(b *testing.B) {
	needs(b, "nft")
	inNamespace(b, func(ns *host.NetNS) {
		var rules strings.Builder
		rules.WriteString("table inet shop {\n chain in {\n type filter hook input priority 0;\n")
		for n := range 2000 {
			fmt.Fprintf(&rules, "ip saddr 10.%d.%d.0/24 tcp dport %d counter drop\n", n/250, n%250, 1000+n)
		}
		rules.WriteString(" }\n}\n")
		path := filepath.Join(b.TempDir(), "rules")
		if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
			b.Error(err)
			return
		}
		run(b, "nft -f "+path)
		b.ResetTimer()
		for range b.N {
			if c, err := ReadCounts(ns); err != nil || c.Rules != 2000 {
				b.Errorf("%d rules, %v", c.Rules, err)
			}
		}
	})
}

// BenchmarkReadPath reads the path of a namespace with a few devices.
func BenchmarkReadPath(b *testing.B) {
	inNamespace(b, func(ns *host.NetNS) {
		for range b.N {
			if _, err := ReadPath(ns); err != nil {
				b.Error(err)
			}
		}
	})
}
