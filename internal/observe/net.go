package observe

// NetNS is one network namespace in which something serves or calls, or that
// packets pass.
type NetNS struct {
	Inode     uint64            `json:"inode"`
	Host      bool              `json:"host,omitempty"`     // the initial namespace
	PID       int               `json:"pid"`                // a process that lives in it; 0 = none does
	Name      string            `json:"name,omitempty"`     // by which ip-netns(8) knows it
	Path      string            `json:"path,omitempty"`     // a file that leads to it, and stays when processes end
	Addrs     []string          `json:"addrs,omitempty"`    // its own addresses, without loopback
	Counters  map[string]uint64 `json:"counters,omitempty"` // increases: "TcpExt.ListenOverflows", "Tcp.RetransSegs"…
	SockStat  map[string]int64  `json:"sockstat,omitempty"` // at the end: "TCP.inuse", "TCP.tw"…
	Sysctl    map[string]string `json:"sysctl,omitempty"`   // as seen inside: "net.core.somaxconn"…
	Conntrack *Conntrack        `json:"conntrack,omitempty"`
	Listeners []Listener        `json:"listeners,omitempty"`
	Sockets   []SocketGroup     `json:"sockets,omitempty"`
	// UDP is the sockets that dropped datagrams, most first, at most 64.
	UDP []UDPSocket `json:"udp,omitempty"`
	// Interfaces are those that moved packets.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// What packets pass on their way; see drop.go.
	Firewall   *Firewall       `json:"firewall,omitempty"`
	Links      []Link          `json:"links,omitempty"`
	Qdiscs     []Qdisc         `json:"qdiscs,omitempty"`
	Filters    []TrafficFilter `json:"filters,omitempty"`
	Neighbours []Neighbour     `json:"neighbours,omitempty"`
	Routes     []Route         `json:"routes,omitempty"`
}

// UDPSocket is one UDP socket that dropped datagrams in the window.
type UDPSocket struct {
	Addr       string `json:"addr"`
	Port       int    `json:"port"`
	Inode      uint64 `json:"inode"`
	PID        int    `json:"pid,omitempty"`         // one that has it open
	QueueBytes uint64 `json:"queue_bytes,omitempty"` // received and not read, at the end
	Drops      uint64 `json:"drops"`                 // datagrams that did not fit into the receive buffer, or had a wrong checksum
}

// Conntrack is the connection tracking table of one namespace.
type Conntrack struct {
	Entries      uint64 `json:"entries"` // at the end
	PeakEntries  uint64 `json:"peak_entries"`
	Max          uint64 `json:"max"`  // nf_conntrack_max; a host-wide limit compared with each namespace's own count
	Drop         uint64 `json:"drop"` // packets dropped because no entry could be had
	EarlyDrop    uint64 `json:"early_drop"`
	InsertFailed uint64 `json:"insert_failed"` // entries that clashed with another one; their packet was dropped
	// ClashResolved are those that did, and whose packet was let through all the same (Linux 5.7).
	ClashResolved uint64 `json:"clash_resolved,omitempty"`
	Invalid       uint64 `json:"invalid"`
}

// Listener is one listening stream socket, TCP or unix.
type Listener struct {
	Proto string `json:"proto"`          // "tcp", "tcp6", "unix"
	Addr  string `json:"addr,omitempty"` // "0.0.0.0", "::", "127.0.0.1"…
	Port  int    `json:"port,omitempty"`
	Path  string `json:"path,omitempty"` // unix
	Inode uint64 `json:"inode"`
	PID   int    `json:"pid"`            // the process that accepts (a worker's master when many share it)
	PIDs  []int  `json:"pids,omitempty"` // all that hold it, at most 64
	Comm  string `json:"comm,omitempty"`

	Limit       uint32  `json:"limit"`      // backlog in force: min(application's, somaxconn)
	QueuePeak   uint32  `json:"queue_peak"` // connections waiting for accept()
	QueueMean   float64 `json:"queue_mean"`
	Samples     int     `json:"samples"`
	FullSamples int     `json:"full_samples"` // queue > limit: the kernel's own test (sk_acceptq_is_full)
	Drops       uint64  `json:"drops"`        // SYNs and handshakes dropped at this socket (sk_drops), increase

	Opened     uint64 `json:"opened"`                // handshakes completed in the window (BPF), 0 when not known
	Clients    int    `json:"clients"`               // established connections, peak of the samples
	ClientPIDs []int  `json:"client_pids,omitempty"` // local processes at the other end, at most 64

	// Since is when it was first seen, in seconds into the window; 0 = from its beginning.
	Since float64 `json:"since,omitempty"`
}

// SocketGroup counts the TCP sockets of one namespace that share an end.
type SocketGroup struct {
	Side   string         `json:"side"`             // "served": Port is the local, listening one; "called": the remote one
	Addr   string         `json:"addr,omitempty"`   // called: local address
	Remote string         `json:"remote,omitempty"` // called: remote address
	Port   int            `json:"port"`
	States map[string]int `json:"states"` // TCP state → sockets, in the sample with most: "ESTABLISHED", "SYN_SENT", "TIME_WAIT"…
	// LocalPorts counts distinct local ports in use towards this end (called
	// side), in the same sample.
	LocalPorts int   `json:"local_ports,omitempty"`
	PIDs       []int `json:"pids,omitempty"` // owners, at most 16
}

// Connect is the outcome of connect() calls of one process to one address, and
// of the handshakes that followed (sock:inet_sock_set_state). Calls to unix
// sockets (syscalls:sys_enter_connect and sys_exit_connect) are those of
// Observation.CallSeconds only.
type Connect struct {
	PID    int    `json:"pid"`
	Comm   string `json:"comm"`
	NetNS  uint64 `json:"netns"`
	Family string `json:"family"` // "inet", "inet6", "unix"
	Addr   string `json:"addr,omitempty"`
	Port   int    `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`

	Calls   uint64            `json:"calls"`
	Started uint64            `json:"started"`          // that did not fail at once
	Errors  map[string]uint64 `json:"errors,omitempty"` // "EADDRNOTAVAIL" (TCP), "EAGAIN" and "other" (unix) → calls

	Established uint64 `json:"established"`           // handshakes completed
	Failed      uint64 `json:"failed"`                // handshakes given up or refused; of these:
	Refused     uint64 `json:"refused,omitempty"`     // ECONNREFUSED: a reset came back
	TimedOut    uint64 `json:"timed_out,omitempty"`   // ETIMEDOUT: the kernel sent its last SYN in vain
	Unreachable uint64 `json:"unreachable,omitempty"` // EHOSTUNREACH, ENETUNREACH
}

// Accept is the outcome of accept() calls of one process, in
// Observation.CallSeconds.
type Accept struct {
	PID      int               `json:"pid"`
	Comm     string            `json:"comm"`
	Accepted uint64            `json:"accepted"`
	Errors   map[string]uint64 `json:"errors,omitempty"` // "EMFILE" → calls; EAGAIN is not an error and is left out
}
