package observe

// DNS is the lookups of names by one process, over UDP, in the window.
type DNS struct {
	PID   int    `json:"pid"`
	Comm  string `json:"comm"`
	NetNS uint64 `json:"netns"`

	// Lookups came to an end, with an answer to all queries for the name.
	Lookups     uint64 `json:"lookups"`
	LookupNS    int64  `json:"lookup_ns"` // from the first query to the last answer
	LookupMaxNS int64  `json:"lookup_max_ns"`
	NotFound    uint64 `json:"not_found,omitempty"` // NXDOMAIN
	// Open had no answer when the window ended, for a second or more.
	Open   uint64 `json:"open,omitempty"`
	OpenNS int64  `json:"open_ns,omitempty"`
	// Of Sampled names that were not found, Searched ended in a search domain.
	Sampled  int `json:"sampled,omitempty"`
	Searched int `json:"searched,omitempty"`

	Servers  []DNSServer `json:"servers"` // most queries first
	Resolver *Resolver   `json:"resolver,omitempty"`
}

// DNSServer is a nameserver as one process meets it.
type DNSServer struct {
	Addr       string `json:"addr"`
	Queries    uint64 `json:"queries"`
	Answered   uint64 `json:"answered"`
	Unanswered uint64 `json:"unanswered,omitempty"` // asked again or elsewhere before an answer came, or without one at the end
	LostNS     int64  `json:"lost_ns,omitempty"`    // what lookups waited for it in vain
	// Halves are those of Unanswered whose twin, sent at the same time for the other family of
	// addresses of the name, was answered.
	Halves      uint64 `json:"halves,omitempty"`
	AnswerNS    int64  `json:"answer_ns"` // of those answered
	AnswerMaxNS int64  `json:"answer_max_ns"`
	Slow        uint64 `json:"slow,omitempty"`      // answers that took over 100 ms
	NotFound    uint64 `json:"not_found,omitempty"` // NXDOMAIN
	Failed      uint64 `json:"failed,omitempty"`    // SERVFAIL, REFUSED and other errors
}

// Resolver is how a process looks up names: resolv.conf(5) as it sees it.
type Resolver struct {
	File           string   `json:"file"` // inside its root
	NameServers    []string `json:"name_servers,omitempty"`
	Search         []string `json:"search,omitempty"`
	NDots          int      `json:"ndots"`
	TimeoutSeconds int      `json:"timeout_seconds"`
	Attempts       int      `json:"attempts"`
	Rotate         bool     `json:"rotate,omitempty"`
}
