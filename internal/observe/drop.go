package observe

// Drops is what the kernel threw away in the window, packet by packet
// (tracepoint skb:kfree_skb). What it drops without a word, as a full accept
// queue does, only counters tell.
type Drops struct {
	// Reasons says that the kernel tells them (Linux 5.17); otherwise only the
	// function is known.
	Reasons bool   `json:"reasons"`
	List    []Drop `json:"list,omitempty"`
}

// Drop is packets of one kind that were dropped for one reason at one place.
type Drop struct {
	Reason    string `json:"reason,omitempty"`   // "NETFILTER_DROP": enum skb_drop_reason without its prefix
	Location  string `json:"location,omitempty"` // the kernel function that dropped them
	NetNS     uint64 `json:"netns,omitempty"`
	Interface string `json:"interface,omitempty"` // where they came in, or were about to go out
	In        bool   `json:"in,omitempty"`        // they came in at a device
	Kind      string `json:"kind"`                // "tcp syn", "tcp syn-ack", "tcp data", "tcp ack", "tcp reset", "udp", "icmp", "arp", "fragment", "other"

	Packets  uint64 `json:"packets"`
	Segments uint64 `json:"segments"` // of the wire: a packet of TSO or GRO stands for several
	Bytes    uint64 `json:"bytes"`
	Longest  uint32 `json:"longest"` // bytes of a packet
	Shortest uint32 `json:"shortest"`

	// Flows is between whom, as far as it was looked at; most segments first,
	// at most 32.
	Flows []DropFlow `json:"flows,omitempty"`
}

// DropFlow is the addresses and ports of dropped packets. A port that nobody
// listens at, as a client has it, is 0.
type DropFlow struct {
	Src      string `json:"src"`
	Dst      string `json:"dst"`
	SrcPort  int    `json:"src_port,omitempty"`
	DstPort  int    `json:"dst_port,omitempty"`
	Segments uint64 `json:"segments"`
}

// The kinds of Drop.
const (
	DropSYN    = "tcp syn"
	DropSYNACK = "tcp syn-ack"
	DropData   = "tcp data"
	DropACK    = "tcp ack"
)

// Firewall is the rules of one namespace that drop or reject packets.
type Firewall struct {
	Rules []FirewallRule `json:"rules,omitempty"`
	All   int            `json:"all"` // rules there are, of every verdict
	// Long is the chains with most rules, most first, at most 4, of 500 rules or more: a packet
	// passes the rules of a chain one after the other.
	Long []FirewallChain `json:"long,omitempty"`
}

// FirewallChain is a chain of rules.
type FirewallChain struct {
	Backend string `json:"backend"` // of these, as in FirewallRule
	Family  string `json:"family"`
	Table   string `json:"table"`
	Chain   string `json:"chain"`
	Rules   int    `json:"rules"`
}

// FirewallRule is one rule, or the policy of a chain, that drops or rejects.
type FirewallRule struct {
	Backend string `json:"backend"` // "nft", "iptables-nft", "iptables-legacy"
	Family  string `json:"family"`  // "ip", "ip6", "inet", "netdev", "bridge"
	Table   string `json:"table"`
	Chain   string `json:"chain"`
	// Hooks are where the packets pass that come to the rule: "input",
	// "output", "forward", "prerouting", "postrouting", "ingress", "egress".
	Hooks   []string `json:"hooks,omitempty"`
	Handle  uint64   `json:"handle,omitempty"` // nft
	Number  int      `json:"number,omitempty"` // iptables: the rule's place in its chain, from 1
	Text    string   `json:"text"`
	Verdict string   `json:"verdict"` // "drop", "reject", "policy drop"
	Counted bool     `json:"counted,omitempty"`
	// Packets that it dropped or rejected in the window; only with Counted.
	Packets uint64 `json:"packets,omitempty"`
	// Some says that it does so with some of the packets that match only: by
	// chance, or above a rate or a number of connections.
	Some bool `json:"some,omitempty"`

	// What is sure of the packets that match; nothing where nothing is.
	Protocol string   `json:"protocol,omitempty"` // "tcp", "udp", "icmp"
	SrcPorts [][2]int `json:"src_ports,omitempty"`
	DstPorts [][2]int `json:"dst_ports,omitempty"`
	In       string   `json:"in,omitempty"` // interfaces
	Out      string   `json:"out,omitempty"`
	// Invalid says that it is for what connection tracking finds invalid.
	Invalid bool `json:"invalid,omitempty"`
	// Stateful says that it goes by what connection tracking says of a packet.
	Stateful bool `json:"stateful,omitempty"`
}

// Link is one network device, with what it counted in the window.
type Link struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
	Kind  string `json:"kind,omitempty"` // "veth", "bridge", "vlan"…; empty for hardware
	MTU   int    `json:"mtu"`
	Up    bool   `json:"up,omitempty"`
	// The other end of a veth pair, where its namespace is watched too.
	PeerNetNS uint64 `json:"peer_netns,omitempty"`
	PeerName  string `json:"peer_name,omitempty"`
	PeerMTU   int    `json:"peer_mtu,omitempty"`
	// XDP is how a program is attached: "driver", "generic", "offload".
	XDP        string `json:"xdp,omitempty"`
	XDPProgram uint32 `json:"xdp_program,omitempty"` // its id

	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	// Errors is the counters that rose, but packets and bytes: "rx_dropped",
	// "rx_missed", "rx_crc", "tx_carrier"…; of the driver: "driver.rx_no_buffer".
	Errors map[string]uint64 `json:"errors,omitempty"`
}

// Qdisc is one queueing discipline, with what it did in the window.
type Qdisc struct {
	Interface  string `json:"interface"`
	Kind       string `json:"kind"`
	Handle     string `json:"handle"` // "8001:"
	Parent     string `json:"parent"` // "root", "ingress", "8001:1"
	Text       string `json:"text,omitempty"`
	Packets    uint64 `json:"packets"`
	Drops      uint64 `json:"drops"`
	Overlimits uint64 `json:"overlimits"`
	Backlog    uint32 `json:"backlog"` // bytes, at the end
	RateBits   uint64 `json:"rate_bits,omitempty"`
	// Loss is the share that netem drops on purpose, 0 to 1.
	Loss float64 `json:"loss,omitempty"`
}

// TrafficFilter is a filter of traffic control that may drop: a BPF program or
// one with an action.
type TrafficFilter struct {
	Interface  string `json:"interface"`
	Way        string `json:"way"`  // "ingress", "egress"
	Kind       string `json:"kind"` // "bpf", "matchall", "u32", "flower"…
	Name       string `json:"name,omitempty"`
	Program    uint32 `json:"program,omitempty"`
	Preference int    `json:"preference"`
	Handle     string `json:"handle,omitempty"`
	Protocol   string `json:"protocol,omitempty"`
	Action     string `json:"action,omitempty"` // "drop", "police"
}

// Neighbour is an address of the link that did not answer.
type Neighbour struct {
	Addr      string `json:"addr"`
	Interface string `json:"interface"`
	State     string `json:"state"` // "failed", "incomplete"
}

// Route is a route that sends packets nowhere.
type Route struct {
	Dst  string `json:"dst"`  // "10.1.0.0/16", "default"
	Kind string `json:"kind"` // "blackhole", "unreachable", "prohibit"
	// Table is its number: 254 is main.
	Table int `json:"table"`
}
