package observe

// Thread is one thread's use of the CPUs over the window.
type Thread struct {
	TID             int     `json:"tid"`
	Comm            string  `json:"comm,omitempty"` // when it differs from the process's
	CPUSeconds      float64 `json:"cpu_seconds"`
	RunDelaySeconds float64 `json:"run_delay_seconds"` // runnable but not running
}

// RunSpan is what the threads of a process did in a part of the window, which
// ends Seconds after the window's beginning and begins where the one before it
// ends (the first one: where the window does).
type RunSpan struct {
	Seconds float64 `json:"s"`
	CPU     float64 `json:"cpu"`   // CPU seconds of all threads
	Delay   float64 `json:"delay"` // s runnable but not running, all threads
	// TopTID is the thread that ran or wanted to run most, with its figures.
	TopTID   int     `json:"tid"`
	TopCPU   float64 `json:"top_cpu"`
	TopDelay float64 `json:"top_delay"`
}

// Interface is one network interface over the window, from /proc/net/dev.
type Interface struct {
	Name      string `json:"name"`
	RxPackets uint64 `json:"rx_packets"`
	RxBytes   uint64 `json:"rx_bytes"`
	RxDropped uint64 `json:"rx_dropped,omitempty"`
	TxPackets uint64 `json:"tx_packets"`
	TxBytes   uint64 `json:"tx_bytes"`
	TxDropped uint64 `json:"tx_dropped,omitempty"`
}

// Flow is packets that came in and have an end in common, counted for some
// moments of a window in which packet processing took a good part of a CPU.
type Flow struct {
	NetNS     uint64  `json:"netns"`
	Interface string  `json:"interface,omitempty"`
	Proto     string  `json:"proto"`                // "tcp syn", "tcp reset", "tcp", "udp", "icmp", "arp", "other"; "rest" for all flows that are not listed
	Port      int     `json:"port,omitempty"`       // destination
	Peer      string  `json:"peer,omitempty"`       // the source with most packets of it
	PeerShare float64 `json:"peer_share,omitempty"` // of its packets, 0 to 1
	Packets   uint64  `json:"packets"`              // estimated from samples
}
