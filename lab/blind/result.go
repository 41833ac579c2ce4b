package blind

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/slowray/slowray/lab/grammar"
)

// Schema identifies the JSON of a [Result], which stands on a line of its own.
const Schema = "slowray.draw/1"

// Verdict is what became of a draw, the best first.
type Verdict string

// The verdicts.
const (
	First   Verdict = "first"    // what helps most is named first
	InThree Verdict = "in three" // it is among the first three causes
	Later   Verdict = "later"    // it is named after those
	Wrong   Verdict = "wrong"    // something is found, and not that
	Nothing Verdict = "nothing"  // nothing is found, and requests are harmed
	Silent  Verdict = "silent"   // nothing is wrong, and nothing is found
	Blamed  Verdict = "blamed"   // nothing is wrong, and something is found
	NoHarm  Verdict = "no harm"  // the fault did no measurable harm: drawn again
	Failed  Verdict = "failed"   // it could not be run
)

// Fix is what became of the fix of the first finding.
type Fix string

// What became of it.
const (
	FixWorks Fix = "works"
	FixFails Fix = "fails"
	FixNone  Fix = "none" // none that could be made by pasting it: a change of a program
)

// Result is one draw.
type Result struct {
	Schema  string        `json:"schema"`
	Seed    int64         `json:"seed"`
	Number  int           `json:"number"`
	Kind    string        `json:"kind,omitempty"` // that was asked for; empty where the number drew it
	Healthy bool          `json:"healthy"`
	Shape   grammar.Shape `json:"shape"`
	Verdict Verdict       `json:"verdict"`

	Expected []string  `json:"expected"` // causes that hurt, those that help most first
	Findings []Finding `json:"findings"`
	Subject  bool      `json:"subject"`            // what was named for it is about the right thing
	Blamed   []string  `json:"blamed,omitempty"`   // causes that are found and not there
	Fix      Fix       `json:"fix,omitempty"`      // empty where it was not tried
	FixBy    string    `json:"fix_by,omitempty"`   // what was run, or why nothing
	Proof    string    `json:"proof,omitempty"`    // the verdict of slowray prove, where that made the fix
	Lost     float64   `json:"lost_s"`             // of the account of harm
	Explains float64   `json:"explained_s"`        // of it
	Against  []string  `json:"against,omitempty"`  // contradictions in the report
	Reasons  []string  `json:"reasons,omitempty"`  // why it is not right
	Problem  string    `json:"problem,omitempty"`  // why it failed
	Others   float64   `json:"others"`             // share of the CPUs that other programs took
	LateS    float64   `json:"late_s"`             // from the end of the window to the report
	CPUS     float64   `json:"cpu_s"`              // CPU time of slowray, in all
	WindowS  float64   `json:"window_s"`           // that it looked
	Seconds  float64   `json:"seconds"`            // that the draw took
	Main     string    `json:"main,omitempty"`     // commit that was judged
	Machine  string    `json:"machine,omitempty"`  // it ran on
	Observed string    `json:"observed,omitempty"` // file with what slowray saw
}

// Finding is one that was reported, and whether it is true.
type Finding struct {
	Cause      string    `json:"cause"`
	Role       string    `json:"role"`
	Right      bool      `json:"right"`
	Confidence float64   `json:"confidence"`
	Features   []float64 `json:"features,omitempty"` // as diagnose.Features gives them
}

// Read reads results of files, one a line.
func Read(files ...string) ([]Result, error) {
	var all []Result
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var r Result
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if r.Schema != Schema {
				return nil, fmt.Errorf("%s: schema %q: not known", name, r.Schema)
			}
			all = append(all, r)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// Append adds a result to a file.
func Append(name string, r Result) error {
	r.Schema = Schema
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(f).Encode(r)
}

// Counts says that the draw says something about slowray.
func (r *Result) Counts() bool { return r.Verdict != NoHarm && r.Verdict != Failed }

// Again is the command that repeats the draw.
func (r *Result) Again() string {
	text := fmt.Sprintf("slowray lab bench --seed %d --only %d", r.Seed, r.Number)
	if r.Healthy {
		text += " --healthy 1"
	}
	if r.Kind != "" {
		text += " --kind " + r.Kind
	}
	return text
}

// Rank gives the verdict on a draw with a fault from its findings: where among those
// of role cause the first one stands that is right.
func Rank(findings []Finding, best []string) Verdict {
	at, n := -1, 0
	for _, f := range findings {
		if f.Role != "cause" {
			continue
		}
		if slices.Contains(best, f.Cause) && at < 0 {
			at = n
		}
		n++
	}
	switch {
	case at == 0:
		return First
	case at > 0 && at < 3:
		return InThree
	case at >= 3:
		return Later
	case len(findings) == 0:
		return Nothing
	}
	return Wrong
}
