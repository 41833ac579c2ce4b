package observe

// Database is one running database or cache server.
type Database struct {
	Kind      string `json:"kind"` // "mariadb", "mysql", "postgresql", "redis", "valkey", "memcached"
	PID       int    `json:"pid"`
	NetNS     uint64 `json:"netns"`
	Container string `json:"container,omitempty"`
	Root      string `json:"root,omitempty"`   // how to reach its files from the host, "/proc/PID/root"; empty = same root
	Config    string `json:"config,omitempty"` // main file, inside its root; empty where it has none or it is not known
	Ports     []int  `json:"ports,omitempty"`  // TCP ports it listens at
	// Sockets are the unix sockets that it listens at, inside its root.
	Sockets []string `json:"sockets,omitempty"`
	User    string   `json:"user,omitempty"` // that it runs as, by its own list of users

	// MaxConnections is the limit of connections, with Reserved of them kept
	// for administrators; no value where it is not known.
	MaxConnections Setting `json:"max_connections"`
	Reserved       int     `json:"reserved,omitempty"`
	// Settings are others of interest, by the server's own names.
	Settings map[string]Setting `json:"settings,omitempty"`

	// What was sampled over the window: connections that the server held, to
	// unix sockets too.
	Samples         int     `json:"samples"`
	ConnectionsPeak int     `json:"connections_peak"`
	ConnectionsMean float64 `json:"connections_mean"`

	Sessions *Sessions       `json:"sessions,omitempty"` // PostgreSQL
	Status   *DatabaseStatus `json:"status,omitempty"`   // Redis, memcached: what it answered
	Log      []LogKind       `json:"log,omitempty"`
	Slow     *SlowLog        `json:"slow,omitempty"`
	Logs     []LogFile       `json:"logs,omitempty"`
}

// Sessions is what the titles of PostgreSQL's backends said over the window
// (update_process_title is on unless somebody switched it off).
type Sessions struct {
	Rounds        int     `json:"rounds"`         // looks at all backends
	BackendsMean  float64 `json:"backends_mean"`  // with a client
	WaitingMean   float64 `json:"waiting_mean"`   // of those, waiting for a lock of a row, a table or the like
	WaitingPeak   int     `json:"waiting_peak"`   // in one look
	WaitingRounds int     `json:"waiting_rounds"` // looks in which one waited
	// Waiters and Holders are those seen most: who waited, and who was idle in
	// a transaction while others waited. At most 8 each.
	Waiters []Session `json:"waiters,omitempty"`
	Holders []Session `json:"holders,omitempty"`
	Skipped int64     `json:"skipped,omitempty"` // backends that a look left out
	// Statements are those that backends were seen executing most, where no log tells
	// them; at most 3.
	Statements []RunningStatement `json:"statements,omitempty"`
}

// RunningStatement is a statement with the looks at backends that found it executed.
type RunningStatement struct {
	Statement string `json:"statement"` // without its values
	Rounds    int    `json:"rounds"`
}

// Session is one backend of PostgreSQL.
type Session struct {
	PID     int    `json:"pid"`
	User    string `json:"user,omitempty"`
	Name    string `json:"database,omitempty"`
	Client  string `json:"client,omitempty"` // "10.1.2.3(41234)", "[local]"
	Doing   string `json:"doing,omitempty"`  // "UPDATE", "idle in transaction"
	Rounds  int    `json:"rounds"`           // looks in which it was seen so
	Running int    `json:"running,omitempty"`
}

// DatabaseStatus is what a server told about itself at both ends of the
// window, where it tells so without a password.
type DatabaseStatus struct {
	Begin map[string]float64 `json:"begin,omitempty"` // by the server's own names: "connected_clients"
	End   map[string]float64 `json:"end,omitempty"`
	// Refused is what it said instead of an answer, at either end.
	Refused string `json:"refused,omitempty"`
}

// Increase is how much a figure grew over the window; false where it is not
// known at both ends, or the server was started anew.
func (s *DatabaseStatus) Increase(name string) (float64, bool) {
	if s == nil {
		return 0, false
	}
	a, known := s.Begin[name]
	b, still := s.End[name]
	return b - a, known && still && b >= a
}

// SlowLog is the statements that a server itself found slow in the window,
// each joined with the request that brought it, by its peer and time.
type SlowLog struct {
	Source      string  `json:"source"`                 // file, or the command that lists them
	Threshold   Setting `json:"threshold"`              // as the server is configured, in its own unit
	ThresholdNS int64   `json:"threshold_ns,omitempty"` // -1: nothing is logged
	Off         string  `json:"off,omitempty"`          // why there is none, one sentence

	Entries  int64 `json:"entries"`
	NS       int64 `json:"ns"`                 // that they took, by the server's clock
	Joined   int64 `json:"joined"`             // with a request
	Unjoined int64 `json:"unjoined,omitempty"` // no request was recorded where it could be: unix socket, or the server's own
	Lost     int64 `json:"lost,omitempty"`     // that were overwritten before they were read

	Statements []SlowStatement `json:"statements,omitempty"` // most time first, at most 32; the others are only in the sums
}

// SlowStatement sums up the entries with the same normalised text.
type SlowStatement struct {
	Statement string `json:"statement"` // without its literals
	Count     int64  `json:"count"`
	NS        int64  `json:"ns"`
	LongestNS int64  `json:"longest_ns"`
	LockNS    int64  `json:"lock_ns,omitempty"` // of NS, as the log says
	Examined  int64  `json:"rows_examined,omitempty"`
	Sent      int64  `json:"rows_sent,omitempty"`

	// Of the joined ones: the ledgers of their requests.
	Joined    int64 `json:"joined"`
	RequestNS int64 `json:"request_ns,omitempty"` // their totals
	ServerNS  int64 `json:"server_ns,omitempty"`  // server and stall: what the statement itself needed
	NetworkNS int64 `json:"network_ns,omitempty"` // network, retransmission, full windows and buffers
	QueueNS   int64 `json:"queue_ns,omitempty"`   // waiting to be accepted or read
	Retrans   int64 `json:"retrans,omitempty"`    // segments retransmitted
	// OnWire is how many of the joined requests spent more of their time on the
	// network than in the server.
	OnWire int64 `json:"on_wire,omitempty"`
	// Callers are the processes of this host that asked, most server time
	// first, at most 4; who asked from elsewhere is in none of them.
	Callers []SlowCaller `json:"callers,omitempty"`
}

// SlowCaller is a process that had statements answered slowly.
type SlowCaller struct {
	PID       int   `json:"pid"`
	Joined    int64 `json:"joined"`
	RequestNS int64 `json:"request_ns"`
	ServerNS  int64 `json:"server_ns"`
}
