package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

// dropped is a host on which packets die at several layers; name is put
// wherever others choose a name.
func dropped(name string) *observe.Observation {
	flow := []observe.DropFlow{{Src: "10.0.0.2", Dst: "10.0.0.1", DstPort: 80, Segments: 60}}
	return &observe.Observation{
		Host: observe.Host{Name: name, Kernel: "6.18", CPUs: 2}, Window: observe.Window{Seconds: 5},
		Use: observe.HostUse{Softnet: []observe.Softnet{{CPU: 1, Dropped: 4}}},
		Drops: &observe.Drops{Reasons: true, List: []observe.Drop{
			{Reason: "NETFILTER_DROP", Location: "nft_do_chain", NetNS: 7, Interface: name, In: true, Kind: "tcp data", Packets: 60, Segments: 60, Bytes: 6000, Longest: 100, Shortest: 100, Flows: flow},
			{Reason: "QDISC_DROP", Location: "__dev_queue_xmit", NetNS: 7, Interface: name, Kind: "udp", Packets: 5, Segments: 5},
			{Reason: "TC_INGRESS", NetNS: 7, Interface: name, In: true, Kind: "tcp syn", Packets: 3, Segments: 3},
			{Location: "__dev_forward_skb", NetNS: 7, Interface: name, Kind: "tcp data", Packets: 2, Segments: 2, Longest: 1500},
		}},
		Namespaces: []observe.NetNS{{
			Inode: 7, PID: 40, Addrs: []string{"10.0.0.1"},
			Counters:  map[string]uint64{"TcpExt.ListenOverflows": 9, "Udp.RcvbufErrors": 3},
			Listeners: []observe.Listener{{Proto: "tcp", Addr: "10.0.0.1", Port: 80, PID: 41, Drops: 9}},
			Links:     []observe.Link{{Name: name, Index: 2, MTU: 1500, PeerName: name, PeerMTU: 100, Errors: map[string]uint64{"rx_missed": 8}}},
			Qdiscs:    []observe.Qdisc{{Interface: name, Kind: "tbf", Handle: "1:", Parent: "root", Drops: 5, RateBits: 5e6}},
			Filters:   []observe.TrafficFilter{{Interface: name, Way: "ingress", Kind: "bpf", Name: name, Program: 5}},
			Firewall: &observe.Firewall{All: 3, Rules: []observe.FirewallRule{{Backend: "nft", Family: "inet", Table: name, Chain: name, Hooks: []string{"input"}, Handle: 3,
				Text: "tcp dport 80 " + name + " drop", Verdict: "drop"}}},
		}},
		Processes: []observe.Process{{PID: 41, Comm: name}},
		Gaps:      []observe.Gap{{Kind: observe.KindFirewall, Subject: name, Because: name, Partial: true}},
	}
}

// TestDropsHostile: what others named drives no terminal, and JSON keeps to its
// schema, with and without drops.
func TestDropsHostile(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../schema/drops.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []*observe.Observation{dropped("eth0"), dropped("\x1b[31m\u202e\x00evil"), {Host: observe.Host{CPUs: 1}}} {
		r := diagnose.Drops(t.Context(), o, diagnose.Saved)
		var text, out bytes.Buffer
		if err := Drops(&text, &r, Style{Width: 60}); err != nil {
			t.Fatal(err)
		}
		if err := DropsJSON(&out, &r); err != nil {
			t.Fatal(err)
		}
		for _, c := range text.String() {
			if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
				t.Fatalf("control character %U in\n%q", c, text.String())
			}
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
}

// TestDropsText: each place is there, with what tells it from others.
func TestDropsText(t *testing.T) {
	r := diagnose.Drops(t.Context(), dropped("eth0"), diagnose.Saved)
	var text bytes.Buffer
	if err := Drops(&text, &r, Style{Width: 100}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"94 packets dropped", "nft inet eth0 eth0 handle 3", "(no counter: found by what the others leave over)", "to 10.0.0.1:80 (eth0, pid 41)",
		"tbf 1: on eth0", "shaped to 5 Mbit/s", "filter bpf eth0, BPF program 5", "MTU 1500 here, 100 at the other end", "socket of 10.0.0.1:80 (eth0, pid 41)",
		"rx_missed", "kernel: NETFILTER_DROP in nft_do_chain()", "Not checked: firewall: eth0: eth0", "Nothing died at:",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
	if r := diagnose.Drops(t.Context(), &observe.Observation{}, diagnose.Saved); r.Packets != 0 || len(r.Layers) != 0 {
		t.Errorf("nothing dropped, and reported: %+v", r)
	}
}
