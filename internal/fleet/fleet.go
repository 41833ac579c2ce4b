package fleet

import (
	"context"
	"iter"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Stream is one of the series of records that a host ships, each with positions
// of its own.
type Stream string

// The streams.
const (
	Requests Stream = "requests" // slow and failed requests all, others sampled
	Seconds  Stream = "seconds"  // what each endpoint did in each second
	Findings Stream = "findings" // what was found in each window
)

// Position is the place of a record in a stream of a host: records that were made
// later have greater ones. It is never 0 and never used twice, also after the agent
// was killed, by whatever it is made of (package ship).
type Position uint64

// Host is what is known of a host that ships.
type Host struct {
	Name      string            // as the user calls it; the host's name unless told otherwise
	ID        string            // of its history: another one when the history was begun anew
	Labels    map[string]string // as given by --label: rack, zone, version of the configuration …
	Addresses []string          // of its interfaces, without loopback
	Kernel    string            // release, as of uname(2)
	CPUs      int
	Version   string             // of slowray
	Programs  map[string]Program // what it runs as a service, by ProgramOf; as of its last window
}

// Batch is consecutive records of one stream of one host. Its records lie within
// one Day, so that a target can take it as one piece.
type Batch struct {
	Host   *Host
	Stream Stream
	First  Position // of its first record
	Last   Position // of its last one
	Count  int      // records
	Day    int      // of its first record, in days since 1970, UTC: where the batch is filed
	Again  bool     // it was sent before, perhaps by an agent that was killed, and may be there

	// The records, with their positions: only that of the batch's stream is set.
	// They may be read again; what they yield is valid until the next one.
	Requests iter.Seq2[Position, *store.Request]
	Seconds  iter.Seq2[Position, *store.Second]
	Findings iter.Seq2[Position, *store.Finding]
}

// Target is where batches go. Send and Mark are called by one goroutine for each
// stream, Hello and Close by another.
type Target interface {
	// Send stores a batch, whole or not at all. After an error the batch may be
	// there or not: Mark tells. See Temporary.
	Send(ctx context.Context, b *Batch) error
	// Mark is the last position of the stream that is there, 0 when there is none.
	// It waits until what an earlier Send began has come to an end. A target that
	// cannot tell returns ErrNoMark: the agent then relies on what it noted itself,
	// and a batch that was under way when it died may come twice.
	Mark(ctx context.Context, h *Host, s Stream) (Position, error)
	// Hello tells what is known of the host: when the agent begins, and each minute.
	Hello(ctx context.Context, h *Host, now time.Time) error
	Close() error
}

// Lingerer is what a Target or an Archive may be besides: one that small batches are
// expensive for. It tells how long the records of a stream wait for others before they are
// sent to it, at least; who asks for what is newest waits as much longer.
type Lingerer interface {
	Linger(s Stream) time.Duration
}

// Refuser is what a Target may be besides: one that takes a batch and says that it left
// out some of it, which would be refused again. It tells how many items (what the target
// counts: spans, points, lines) that were since it was opened, and why, of the last ones.
type Refuser interface {
	Refused() (items uint64, why string)
}

// Key is an endpoint of a host.
type Key struct {
	Host    string
	Service string // what answers, or at the calling end what calls: see Service
	Side    observe.Side
	Addr    string // of the endpoint: served: where it listens; called: what is called
	Port    int
}

// Point is what an endpoint did in some seconds, as far as an archive is asked for
// it. Sums are over all requests; times are µs.
type Point struct {
	Key
	At       int64 // s since 1970
	Seconds  int
	Requests uint64
	Errors   uint64 // error, no answer, or reset
	TotalUS  int64
	PartsUS  [observe.NumParts]int64       // sums, by observe.Part
	SplitUS  [observe.NumServerParts]int64 // sums, by observe.ServerPart
	P50US    int64                         // of the total
	P99US    int64
	Segments uint64 // sent with data
	Retrans  uint64 // retransmitted
	SynAgain uint64 // SYNs retransmitted
	MinRTTUS int64
}

// Place is where the processes of an endpoint run, as far as their host tells.
type Place struct {
	Cgroup    string // path of their control group; of several what they have in common
	Container string // its name, else its ID; empty where they run in none
}

// Total is what an endpoint did over all of a question's time.
type Total struct {
	Key
	Requests uint64
	Errors   uint64            // error, no answer, or reset
	TotalUS  int64             // sum over all requests
	Segments uint64            // sent with data
	Retrans  uint64            // retransmitted
	Times    observe.Histogram // of the requests' total
}

// Question chooses what an archive is asked for. Zero values choose all.
type Question struct {
	From, To time.Time // From inclusive, To exclusive
	Host     string
	Service  string
	Side     observe.Side
	Port     int
	Trace    observe.TraceMatch // of requests: only those of a trace, or whose trace begins so
	Most     int                // of requests: the first so many
}

// Archive answers over all hosts.
type Archive interface {
	// Hosts are all that ever said Hello, with when they last did.
	Hosts(ctx context.Context) ([]HostSeen, error)
	// Points gives what each endpoint did in each step (1 s, 10 s or 5 min), in the
	// order of time, to f, until it returns false.
	Points(ctx context.Context, q Question, step time.Duration, f func(*Point) bool) error
	// Quantiles are exact to 2 %: of the total of all requests, for each service, over
	// all of the question's time, whatever the number of hosts.
	Quantiles(ctx context.Context, q Question, quantiles []float64) ([]ServiceTimes, error)
	// Totals gives what each endpoint did over all of the question's time, in no order,
	// to f, until it returns false. What is given may be kept.
	Totals(ctx context.Context, q Question, f func(*Total) bool) error
	// Places are where the endpoints run that did anything in the question's time, widened
	// to whole five minutes.
	Places(ctx context.Context, q Question) (map[Key]Place, error)
	// Findings are what the hosts themselves found.
	Findings(ctx context.Context, q Question) ([]HostFinding, error)
	// Requests gives stored requests, in the order of time, to f.
	Requests(ctx context.Context, q Question, f func(host string, r *store.Request) bool) error
}

// Partly is what an Archive may be besides: one of several servers, which can answer as
// far as those know that are there while others are away.
type Partly interface {
	// InPart allows answers in part from now on, and forgets who was away. Without it
	// all must answer.
	InPart()
	// Absent are those that were away when something was asked since: their names, each a
	// few words, without an order that means something. It is empty while all answered.
	Absent() []string
}

// HostSeen is a host, and when it last said Hello.
type HostSeen struct {
	Host
	Last time.Time
	// Twins is how many other hosts say Hello by the same name at the same time: their
	// histories and addresses are others.
	Twins int
}

// ServiceTimes are the quantiles of a service.
type ServiceTimes struct {
	Service     string
	Side        observe.Side
	Hosts       int
	Requests    uint64
	Errors      uint64
	QuantilesUS []int64 // as asked for
}

// HostFinding is a finding of a host.
type HostFinding struct {
	Host string
	store.Finding
}
