package diagnose

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// SchemaReport identifies the JSON form of a Report.
const SchemaReport = "slowray.report/1"

// Report is the judgement of one Observation.
type Report struct {
	Schema    string          `json:"schema"`
	Host      ReportHost      `json:"host"`
	Window    ReportWindow    `json:"window"`
	Endpoints []Endpoint      `json:"endpoints"`
	Findings  []cause.Finding `json:"findings"`
	// Account is who was harmed, by how much, and how much of it the findings explain.
	Account cause.Account `json:"account"`
	// Unlinked is trouble that was seen while somebody was harmed, and that no finding
	// is about.
	Unlinked   []cause.Sight  `json:"unlinked,omitempty"`
	RuledOut   []Excluded     `json:"ruled_out"`
	NotChecked []Excluded     `json:"not_checked"`
	Losses     []observe.Loss `json:"losses"`
	// Changes are what was changed on the host lately, newest first: no verdict.
	Changes []Change `json:"changes,omitempty"`
	// History is set where several windows were judged.
	History *History `json:"history,omitempty"`
	// CutShort is why judging was ended before all was judged; empty where it was not.
	// No finding does not mean then that there is nothing to find.
	CutShort string `json:"cut_short,omitempty"`
	// Capture is the file of packets that is judged, nil where a host was watched.
	Capture *observe.Capture `json:"capture,omitempty"`
}

// ReportHost names the machine that was watched.
type ReportHost struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	BootID string `json:"boot_id"`
}

// ReportWindow is the time that was watched.
type ReportWindow struct {
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
}

// Excluded is a cause that is not among the findings, and why.
type Excluded struct {
	Cause   string `json:"cause"`
	Because string `json:"because"`
}

// isCause has the causes that there are: what is listed next to them under NotChecked is what
// could not be read.
var isCause = sync.OnceValue(func() map[string]bool {
	known := map[string]bool{}
	for _, c := range cause.Catalogue() {
		known[string(c.ID)] = true
	}
	return known
})

// Unchecked is how many causes could not be checked.
func (r *Report) Unchecked() (causes int) {
	for _, e := range r.NotChecked {
		if isCause()[e.Cause] {
			causes++
		}
	}
	return causes
}

// NotPermitted says that rights were missing to check all causes.
func (r *Report) NotPermitted() bool {
	return slices.ContainsFunc(r.NotChecked, func(e Excluded) bool { return strings.Contains(e.Because, "not permitted") })
}

// Nothing says that there was not even a sign of the cause, as far as its reason
// goes: those that say so begin with it (cause.Result).
func (e Excluded) Nothing() bool {
	first, _, _ := strings.Cut(e.Because, " ")
	switch first {
	case "no", "none", "nothing", "nobody", "0", "neither":
		return true
	}
	return false
}

// Endpoint is a service that was seen, from the side that serves it or from
// the side that calls it.
type Endpoint struct {
	Side    string   `json:"side"` // "served" or "called"
	NetNS   uint64   `json:"netns"`
	Addr    string   `json:"addr"`
	Port    int      `json:"port"`
	Process *Process `json:"process,omitempty"`
	// Workload is who has Addr in Kubernetes, of a called one.
	Workload *observe.Workload `json:"workload,omitempty"`

	// Requests, RPS and Errors come from the requests recorded in the kernel,
	// else from an access log; nil when there is neither. Errors are only known
	// of protocols that slowray reads the status of; requests that nobody answered are
	// none of them, see Unanswered.
	Requests *int64   `json:"requests,omitempty"`
	RPS      *float64 `json:"rps,omitempty"`
	Errors   *int64   `json:"errors,omitempty"`
	// GoodRPS is good answers per second (HTTP: 2xx and 3xx): the throughput
	// that counts.
	GoodRPS *float64 `json:"good_rps,omitempty"`
	// Connections opened in the window, and open at its busiest moment.
	Opened  uint64 `json:"connections_opened"`
	Clients int    `json:"connections_open"`
	// Handshakes of TLS are no requests; those that failed ended with their connection.
	TLS       uint64  `json:"tls_handshakes,omitempty"`
	TLSFailed uint64  `json:"tls_failed,omitempty"`
	TLSMean   float64 `json:"tls_handshake_us,omitempty"` // mean of those completed, µs
	TLSIs     *TLS    `json:"tls,omitempty"`
	Connect   float64 `json:"connect_us,omitempty"` // called: mean handshake of TCP before that, µs

	// What follows is nil or empty where no request was recorded.
	Total  *QuantilesUS        `json:"total_us,omitempty"`
	Ledger map[string]LedgerUS `json:"ledger_us,omitempty"` // by part; the means of all but ack_delay add up to the mean total
	Slow   *SlowRequests       `json:"slow,omitempty"`
	RTT    *float64            `json:"rtt_us,omitempty"`     // median, µs
	MinRTT *float64            `json:"min_rtt_us,omitempty"` // least of all connections, µs
	Loss   *float64            `json:"loss_permille,omitempty"`
	// Retrans is segments retransmitted.
	Retrans *int64 `json:"retrans,omitempty"`
	// Unfinished requests were going on at the end of the window for more
	// than a second; Unanswered ones ended without a response byte.
	Unfinished int64 `json:"unfinished,omitempty"`
	Unanswered int64 `json:"unanswered,omitempty"`
	// Recorded requests have a record of their own; the others are counted
	// and have part in every mean, and none in the quantiles.
	Recorded *int64 `json:"recorded,omitempty"`
	// SampleError is the standard error of counts and sums, a part of them, where only
	// some connections were followed at a time.
	SampleError float64 `json:"sample_error,omitempty"`
}

// SlowRequests is where the time of the slowest hundredth goes, of ten
// requests at least.
type SlowRequests struct {
	Requests int64              `json:"requests"`
	Mean     float64            `json:"mean_us"`
	Parts    map[string]float64 `json:"parts_us"` // mean, parts that took any time
}

// Process names the process behind an endpoint.
type Process struct {
	PID       int     `json:"pid"`
	Comm      string  `json:"comm"`
	Cgroup    string  `json:"cgroup"`
	Container *string `json:"container"`
	Name      *string `json:"container_name,omitempty"` // where an engine tells it
	Unit      *string `json:"unit"`
	// Workload is whose container that is in Kubernetes.
	Workload *observe.Workload `json:"workload,omitempty"`
}
