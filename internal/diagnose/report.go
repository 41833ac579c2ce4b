package diagnose

import (
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// SchemaReport identifies the JSON form of a Report.
const SchemaReport = "slowray.report/1"

// Report is the judgement of one Observation.
type Report struct {
	Schema     string          `json:"schema"`
	Host       ReportHost      `json:"host"`
	Window     ReportWindow    `json:"window"`
	Endpoints  []Endpoint      `json:"endpoints"`
	Findings   []cause.Finding `json:"findings"`
	RuledOut   []Excluded      `json:"ruled_out"`
	NotChecked []Excluded      `json:"not_checked"`
	Losses     []observe.Loss  `json:"losses"`
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

// Endpoint is a service that was seen, from the side that serves it or from
// the side that calls it.
type Endpoint struct {
	Side    string   `json:"side"` // "served" or "called"
	NetNS   uint64   `json:"netns"`
	Addr    string   `json:"addr"`
	Port    int      `json:"port"`
	Process *Process `json:"process,omitempty"`

	// Requests and Errors come from an access log; nil when there is none.
	Requests *int64   `json:"requests,omitempty"`
	RPS      *float64 `json:"rps,omitempty"`
	Errors   *int64   `json:"errors,omitempty"`
	// GoodRPS is answers 2xx and 3xx per second: the throughput that counts.
	GoodRPS *float64 `json:"good_rps,omitempty"`
	// Connections opened in the window, and open at its busiest moment.
	Opened  uint64 `json:"connections_opened"`
	Clients int    `json:"connections_open"`
}

// Process names the process behind an endpoint.
type Process struct {
	PID       int     `json:"pid"`
	Comm      string  `json:"comm"`
	Cgroup    string  `json:"cgroup"`
	Container *string `json:"container"`
	Unit      *string `json:"unit"`
}
