package tune

import (
	"io"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// SchemaReport identifies the JSON form of a Report (schema/tune.schema.json).
const SchemaReport = "slowray.tune/1"

// Verdict is what a step came to.
type Verdict string

// The verdicts of a step.
const (
	Proved   Verdict = "proved"    // the effect came and went with the change
	NoEffect Verdict = "no-effect" // nothing moved beyond the noise
	Worse    Verdict = "worse"     // the service got worse with it
	Unclear  Verdict = "unclear"   // something moved and did not come back, or there was too little traffic
	NotMade  Verdict = "not-made"  // the change could not be made
	Untried  Verdict = "untried"   // a dry run, or interrupted before there was a result
)

// Ending is why the loop ended.
type Ending string

// The endings of a loop.
const (
	Healthy     Ending = "healthy"     // no finding is left
	Stuck       Ending = "stuck"       // findings are left, and nothing more to try
	OutOfTime   Ending = "time"        // the time was up
	Interrupted Ending = "interrupted" // by whoever started it
	Harmed      Ending = "harm"        // the service got worse and undoing did not cure it
	Failed      Ending = "failed"      // looking or proving could not go on
	DryRun      Ending = "dry-run"     // nothing was to be changed
)

// Report is what a whole run came to. Times are in seconds since it began.
type Report struct {
	Schema  string              `json:"schema"`
	Host    diagnose.ReportHost `json:"host"`
	Start   time.Time           `json:"start"`
	Seconds float64             `json:"seconds"`
	Service string              `json:"service"` // what it was about, for people
	Load    string              `json:"load"`    // the command that made the load; empty: the service's own traffic
	Applied bool                `json:"applied"` // changes were to be made

	Ending Ending `json:"ending"`
	Text   string `json:"text"` // the ending, for people
	// First and Last are the figures at the beginning and, with what was kept,
	// at the end; nil where they were not measured.
	First *Figures `json:"first"`
	Last  *Figures `json:"last"`
	Steps []Step   `json:"steps"`
	Left  []Left   `json:"left"` // findings of the last look
	// Lasting says how to make permanent what was kept.
	Lasting []shell.Command `json:"lasting"`
	// Undone says that what was kept was taken back at the end.
	Undone bool `json:"undone"`
	// Undo is the command that takes back what is kept; empty where nothing is.
	Undo shell.Command `json:"undo"`
}

// Step is one change that was tried.
type Step struct {
	At      float64         `json:"at"` // when its look began, seconds
	Seconds float64         `json:"seconds"`
	Cause   string          `json:"cause"`
	Title   string          `json:"title"`
	Subject cause.Subject   `json:"subject"`
	Seen    string          `json:"seen"` // what the look saw, for people
	Changes []cause.Change  `json:"changes"`
	Do      []shell.Command `json:"do"`   // what a person would type
	Undo    []shell.Command `json:"undo"` // and to take it back
	// Also are the causes whose changes were made together with Cause's, because
	// none of them helped alone.
	Also []string `json:"also,omitempty"`
	// Again says that the same was tried before, and why once more.
	Again string `json:"again,omitempty"`

	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"` // the verdict, for people
	Kept    bool    `json:"kept"`
	Before  Figures `json:"before"`
	With    Figures `json:"with"`
	After   Figures `json:"after"`
	Blocks  []Block `json:"blocks"`
}

// causes are those that the step is about, for people.
func (s *Step) causes() string { return strings.Join(append([]string{s.Cause}, s.Also...), " + ") }

// Phase is the state in which a block was measured.
type Phase string

// The phases of an experiment.
const (
	Before Phase = "before"
	With   Phase = "with"
	After  Phase = "after"
)

// Block is one measurement. Rates are per second, latencies in milliseconds;
// nil where there was nothing to measure by.
type Block struct {
	Phase   Phase    `json:"phase"`
	At      float64  `json:"at"` // seconds since the step's experiment began
	Seconds float64  `json:"seconds"`
	Good    float64  `json:"good_per_s"` // good responses
	Errors  *float64 `json:"errors_per_s"`
	P50     *float64 `json:"p50_ms"`
	P99     *float64 `json:"p99_ms"`
}

// Figures sum up blocks: rates are means over their time, latencies the middle
// block's.
type Figures struct {
	Blocks int      `json:"blocks"`
	Good   float64  `json:"good_per_s"`
	Errors *float64 `json:"errors_per_s"`
	P50    *float64 `json:"p50_ms"`
	P99    *float64 `json:"p99_ms"`
}

// Left is a finding that nothing was, or could be, done about.
type Left struct {
	Cause   string `json:"cause"`
	Title   string `json:"title"`
	Because string `json:"because"`
	Fix     string `json:"fix"` // how a person can fix it
}

// WriteJSON writes r for programs.
func WriteJSON(w io.Writer, r *Report) error {
	return printable.WriteJSON(w, r)
}

// kept are the steps whose changes stay.
func (r *Report) kept() []*Step {
	var list []*Step
	for i := range r.Steps {
		if r.Steps[i].Kept {
			list = append(list, &r.Steps[i])
		}
	}
	return list
}
