package observe

import "net/netip"

// Part is one part of a request's wall time. The parts but ack_delay add up to
// the total.
type Part int

// The parts, in the order in which a request spends them.
const (
	// AcceptWait: connection complete → accept(); first request of a connection only.
	AcceptWait Part = iota
	// TLS: handshake of TLS, ClientHello → the end of it, once the connection is accepted;
	// first request of a connection only. See TLSStats for who was waited for.
	TLS
	// Upload: first → last request byte (called side: first → last request byte sent).
	Upload
	// RecvWait: last request byte in the socket → read by the application
	// (called side: last response byte in the socket → read).
	RecvWait
	// Server: request read → first response byte (called side: last request
	// byte sent → first response byte, without Network: the other end's time).
	// See ServerPart for what was done in it.
	Server
	// Stall: between response bytes while nothing is in flight: the
	// application is not sending. Server time, not network (called side: gaps
	// in the answer that are longer than a round trip).
	Stall
	// SendWait: response bytes wait in the send queue: buffer or window full,
	// or held back by Nagle's algorithm.
	SendWait
	// Network: first response byte sent → last one acknowledged, without
	// Stall, SendWait and Retrans; one round trip for a short response.
	Network
	// Retrans: added by retransmission.
	Retrans
	// Unaccounted: known to have passed, and not known with what.
	Unaccounted
	// AckDelay: the client acknowledged late or with its next request. Nobody
	// waited for it: it is not part of the total.
	AckDelay

	NumParts
)

// partNames are the keys in JSON.
var partNames = [NumParts]string{
	"accept_wait", "tls", "upload", "recv_wait", "server", "stall", "send_wait", "network", "retrans", "unaccounted", "ack_delay",
}

// String is the part's key in JSON.
func (p Part) String() string { return partNames[p] }

// Ledger is a request's time in nanoseconds, by Part.
type Ledger [NumParts]int64

// Total is the sum of all parts but AckDelay.
func (l *Ledger) Total() int64 {
	var sum int64
	for p := range AckDelay {
		sum += l[p]
	}
	return sum
}

// Opening is how the connection of a called request was opened, of the first request on it: before
// its ledger begins, and no part of that. A handshake of TLS is a part of the ledger. All times
// are ns, at least a microsecond where they are known, 0 where they are not.
type Opening struct {
	// DNS is the lookup, from its first query to its last answer over UDP, of the name whose
	// address the connection goes to. It belongs to the first connection to that address that the
	// process began within a second of it.
	DNS int64
	// Connect is the handshake of TCP: SYN to SYN-ACK, retransmissions included. Without it
	// nothing else is known.
	Connect int64
	// Idle is how long the connection was open before the request was sent, without the handshake
	// of TLS: one that a pool opens ahead was nobody's wait. It may be 0.
	Idle int64
}

// Side says who answers.
type Side uint8

// The sides of an endpoint.
const (
	Served Side = 1 // requests answered here
	Called Side = 2 // requests sent from here to a dependency
)

func (s Side) String() string {
	if s == Called {
		return "called"
	}
	return "served"
}

// RequestFlags say what was special about a request.
type RequestFlags uint32

// The flags. The values are those of request.bpf.c.
const (
	FlagOverlapped    RequestFlags = 1 << iota // pipelined or multiplexed: parts are not told apart
	FlagReset                                  // the connection was reset meanwhile
	FlagUnanswered                             // closed before the first response byte
	FlagTruncated                              // closed before the response was acknowledged
	FlagUnfinished                             // still going on when slowray looked last
	FlagHalfClosed                             // the client closed its sending side
	FlagClosed                                 // the connection was closed with the response
	FlagReordered                              // segments arrived out of order
	FlagNagle                                  // bytes waited for an acknowledgement of earlier ones (TCP_NODELAY off)
	FlagZeroWindow                             // the receiver's window was closed
	FlagSendBuffer                             // the sender's buffer was full
	FlagRecvWindow                             // the receiver's window limited the sender
	FlagTimeout                                // a retransmission timeout expired
	FlagEstimated                              // a boundary was not seen and is estimated
	FlagPreexisting                            // connection older than slowray: its first request may lack the accept wait
	FlagSlow                                   // recorded because it was slow, whatever the sampling
	FlagUploadAcks                             // request segments arrived one delayed acknowledgement apart
	FlagAmended                                // the answer went on after its record: this one takes its place
	FlagContended                              // it waited in futex(2) until a thread that had another request in hand ended that
	FlagMultiplexed                            // one of several that a connection of HTTP/2 may have under way at once
	FlagThreadContext                          // its trace is that of the thread that sent it, or its answer (OTEP 4947): no bytes carried it

	numFlags = iota
)

var flagNames = [numFlags]string{
	"overlapped", "reset", "unanswered", "truncated", "unfinished", "half_closed", "closed", "reordered", "nagle",
	"zero_window", "send_buffer", "receive_window", "timeout", "estimated", "preexisting", "slow", "upload_acks", "amended", "contended", "multiplexed",
	"thread_context",
}

// Names lists the flags as in JSON.
func (f RequestFlags) Names() []string {
	names := []string{}
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Status says how a request ended, as far as the protocol is known.
type Status uint8

// The kinds of status.
const (
	StatusUnknown Status = iota // a protocol that is not known, or encrypted
	StatusOK
	StatusError
)

func (s Status) String() string {
	return [...]string{"unknown", "ok", "error"}[min(s, 2)]
}

// Request is one request as the kernel recorded it.
type Request struct {
	Side      Side
	StartNS   int64 // wall clock, ns since 1970
	NetNS     uint64
	Local     netip.AddrPort // this host's end
	Peer      netip.AddrPort // the other end
	PID       int            // process that read the request (called side: that sent it); 0 = not known
	TID       int
	Seq       uint32 // number of the request on its connection, from 1
	Requests  uint32 // 1, or how many overlapped ones this record stands for
	Weight    uint32 // how many requests this one stands for when records are sampled; 1 otherwise
	Share     uint8  // of that, 2^Share since one of so many connections was followed when it began; not stored
	Ledger    Ledger
	Opening   Opening
	BytesIn   uint64 // request (called side: response)
	BytesOut  uint64 // response (called side: request)
	Unacked   uint32 // bytes out that were not acknowledged when the connection closed, or the window did
	Retrans   uint32 // segments retransmitted
	RTTNS     int64  // of this request, or the smoothed one when it cannot be distinguished
	MinRTTNS  int64  // of the connection
	MSS       uint32
	Status    Status
	HTTP      int // status code, 0 when it is not HTTP or not known; of HTTP/2 sometimes only its class: 200, 300 …
	Flags     RequestFlags
	Label     string // method and path, statement or command: only when asked for
	Trace     Trace  // what it carries in its headers: only with labels
	FirstByte int64  // ns from the start to the first response byte, 0 when there is none
	Followed  bool   // Split is known
	Split     ServerSplit
}

// TotalNS is the request's wall time.
func (r *Request) TotalNS() int64 { return r.Ledger.Total() }

// Endpoint is what was seen of one address that is served here or called from
// here, by one process (or the processes of one master), over the window.
type Endpoint struct {
	Side  string `json:"side"` // "served", "called"
	NetNS uint64 `json:"netns"`
	Addr  string `json:"addr"` // served: the local address; called: the remote one
	Port  int    `json:"port"`
	// Workload is who has Addr, of a called one; nil where that is not known.
	Workload *Workload `json:"workload,omitempty"`
	PID      int       `json:"pid,omitempty"` // served: who answers; called: who calls
	Comm     string    `json:"comm,omitempty"`
	PIDs     []int     `json:"pids,omitempty"` // all processes seen doing so, at most 64
	// TLSLibrary is what encrypts there, where it cannot be watched: requests that run side by side
	// under TLS are then not told apart.
	TLSLibrary string `json:"tls_library,omitempty"`

	Requests   uint64 `json:"requests"`
	OK         uint64 `json:"ok"`                   // known to be answered well
	Errors     uint64 `json:"errors"`               // known to be answered with an error
	Unanswered uint64 `json:"unanswered,omitempty"` // closed before the first byte of an answer; none of Errors
	Unfinished uint64 `json:"unfinished,omitempty"` // in progress at the end of the window, longer than a second
	// Earlier are those that came in before the window and had no answer at its end:
	// no record tells of them. nil: none was seen.
	Earlier    *Earlier `json:"earlier,omitempty"`
	Overlapped uint64   `json:"overlapped,omitempty"`
	Recorded   uint64   `json:"recorded"` // requests with a record of their own; the others are only counted
	// SampleError is the standard error of the sums, as a part of them, where not every
	// connection was followed; 0: they are exact.
	SampleError float64 `json:"sample_error,omitempty"`

	BytesIn  uint64 `json:"bytes_in"`
	BytesOut uint64 `json:"bytes_out"`
	Segments uint64 `json:"segments"` // sent with data, retransmissions included
	Retrans  uint64 `json:"retrans"`  // retransmitted

	Total  Histogram            `json:"total"`
	RTT    Histogram            `json:"rtt"`
	MinRTT int64                `json:"min_rtt_ns"`
	Parts  map[string]PartStats `json:"parts,omitempty"` // by Part.String()
	Split  *SplitStats          `json:"split,omitempty"` // of Server; nil when no request was followed

	// Flags counts requests by flag name.
	Flags map[string]uint64 `json:"flags,omitempty"`
	// Statuses counts HTTP/1 responses by class, "2xx"…
	Statuses map[string]uint64 `json:"statuses,omitempty"`

	Connections  uint64 `json:"connections"`             // opened in the window
	Handshake    int64  `json:"handshake_ns,omitempty"`  // called side: time of all handshakes
	HandshakeMax int64  `json:"handshake_max,omitempty"` // the longest
	SynRetrans   uint64 `json:"syn_retrans,omitempty"`   // SYNs (served: SYN-ACKs) retransmitted

	TLS          uint64 `json:"tls_handshakes,omitempty"`   // handshakes of TLS that were completed: no requests
	TLSFailed    uint64 `json:"tls_failed,omitempty"`       // connections that ended within one
	TLSHandshake int64  `json:"tls_handshake_ns,omitempty"` // time of those completed, ClientHello to Finished
	// TLSStats is what they were like.
	TLSStats TLSStats `json:"tls,omitzero"`

	// Arrivals counts requests that began in each 100 ms of the window.
	Arrivals []uint32 `json:"arrivals,omitempty"`
	// LongestUS is how long the longest of those took, in µs; none where no request took long.
	LongestUS []uint32 `json:"longest_us,omitempty"`
	// Slowest are the slowest requests, slowest first, at most 20; Failed are
	// the latest that failed, at most 20.
	Slowest []RequestSample `json:"slowest,omitempty"`
	Failed  []RequestSample `json:"failed,omitempty"`
	// Peers are the other ends with most time, at most 16.
	Peers []PeerStats `json:"peers,omitempty"`
	// SlowParts sums the parts of the slowest hundredth of the requests, of at
	// least ten.
	SlowParts map[string]int64 `json:"slow_parts_ns,omitempty"`
	SlowCount uint64           `json:"slow_count,omitempty"`
}

// Earlier is requests that sockets tell of: data came in (called side: went out), and
// none went out (came in) since (tcp_info, include/uapi/linux/tcp.h).
type Earlier struct {
	Requests uint64 `json:"requests"`
	Unread   uint64 `json:"unread,omitempty"` // of them, those that nobody has read
	OldestNS int64  `json:"oldest_ns"`        // when the window ended
}

// PartStats is one part of all requests of an endpoint. The sum is exact, also
// when records are sampled; the quantiles are those of the records.
type PartStats struct {
	SumNS int64     `json:"sum_ns"`
	Hist  Histogram `json:"hist"`
	// Dominant counts recorded requests of which this part is the greatest.
	Dominant uint64 `json:"dominant,omitempty"`
}

// PeerStats is one other end of an endpoint.
type PeerStats struct {
	Addr     string    `json:"addr"`
	Workload *Workload `json:"workload,omitempty"` // nil where it is not known
	Requests uint64    `json:"requests"`
	TotalNS  int64     `json:"total_ns"`
	Retrans  uint64    `json:"retrans,omitempty"`
	MinRTT   int64     `json:"min_rtt_ns,omitempty"`
}

// RequestSample is a request kept as an example.
type RequestSample struct {
	StartNS int64  `json:"start_ns"`
	Local   string `json:"local"`
	Peer    string `json:"peer"`
	// Destination is where Peer was translated to (DNAT), of a call; empty where it was not, or
	// nobody knows.
	Destination string `json:"destination,omitempty"`
	// Workload is who had that, or Peer; nil where that is not known.
	Workload *Workload        `json:"workload,omitempty"`
	PID      int              `json:"pid,omitempty"`
	Seq      uint32           `json:"seq"`
	TotalNS  int64            `json:"total_ns"`
	Parts    map[string]int64 `json:"parts_ns"`
	BytesIn  uint64           `json:"bytes_in"`
	BytesOut uint64           `json:"bytes_out"`
	Retrans  uint32           `json:"retrans,omitempty"`
	Unacked  uint32           `json:"unacked,omitempty"` // bytes out that were not acknowledged when it ended, or the window did
	MSS      uint32           `json:"mss,omitempty"`     // only with Unacked
	RTTNS    int64            `json:"rtt_ns,omitempty"`
	MinRTTNS int64            `json:"min_rtt_ns,omitempty"`
	Status   string           `json:"status"`
	HTTP     int              `json:"http_status,omitempty"`
	Flags    []string         `json:"flags,omitempty"`
	Label    string           `json:"label,omitempty"`
}

// Closed is a connection that was closed after at least one request.
type Closed struct {
	Side        Side
	TimeNS      int64 // wall clock, ns since 1970
	NetNS       uint64
	Local, Peer netip.AddrPort
	Seq         uint32 // requests on the connection
	BytesOut    uint64 // acknowledged
	BytesIn     uint64
	Unacked     uint32 // bytes sent and not acknowledged
	Retrans     uint32 // segments
	MinRTTNS    int64
	MSS         uint32
	Reset       bool
}
