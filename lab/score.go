package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// SchemaScore identifies the JSON of a [Score].
const SchemaScore = "slowray.score/1"

// Board is what a scoreboard goes through.
type Board struct {
	Names   []string // incidents, controls, pairs and healthy machines, by name
	Pairs   int      // two faults at once, so often
	Healthy int      // healthy machines, so often
	Times   int      // each of Names, so often; default once
}

// Verdict is what became of one incident.
type Verdict string

// The verdicts, the best first.
const (
	First  Verdict = "first"   // what helps most is named first
	InList Verdict = "in list" // all that hurts is found, something else first
	Silent Verdict = "silent"  // nothing is wrong, and nothing is found
	Missed Verdict = "missed"  // something that hurts is not found
	False  Verdict = "false"   // nothing is wrong, and something is found
	NoHarm Verdict = "no harm" // what was injected did no measurable harm, so nothing was asked
	Failed Verdict = "failed"  // it could not be run, or slowray could not
)

// Row is one run of one incident.
type Row struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"` // "single", "several", "phases", "control", "pair", "healthy"
	Seed     int64    `json:"seed"`
	Verdict  Verdict  `json:"verdict"`
	Expected []string `json:"expected"` // causes that hurt, as measured
	Found    []string `json:"found"`    // causes that slowray named
	False    []string `json:"false"`    // of these, what is not there
	Reasons  []string `json:"reasons"`
	Others   float64  `json:"others"` // share of the CPUs that other programs took while slowray looked
	Tries    int      `json:"tries"`  // 2 where others took so much that it had to be done again
	Seconds  float64  `json:"seconds"`
}

// Score is a whole scoreboard. Its JSON is a contract (schema/score.schema.json).
type Score struct {
	Schema  string  `json:"schema"`
	Rows    []Row   `json:"rows"`
	Single  Tally   `json:"single"`  // incidents with faults
	Pairs   Tally   `json:"pairs"`   // two faults at once: "first" is both found
	Silent  Tally   `json:"silent"`  // controls and healthy machines: "first" is nothing found
	False   int     `json:"false"`   // findings that are not there, in all of them
	Seconds float64 `json:"seconds"` // in all
}

// Tally is how many runs of a kind came out how. Runs in which what was injected
// did no measurable harm, or that failed, are not among Asked.
type Tally struct {
	Asked  int `json:"asked"`
	First  int `json:"first"`
	InList int `json:"in_list"`
	Missed int `json:"missed"`
	NoHarm int `json:"no_harm"`
	Failed int `json:"failed"`
}

// OK says that the score is what is asked for: each single fault first, nine of
// ten pairs both found, and no false finding.
func (s *Score) OK() bool {
	return s.Single.First == s.Single.Asked && s.Single.Failed+s.Pairs.Failed+s.Silent.Failed == 0 &&
		10*s.Pairs.First >= 9*s.Pairs.Asked && s.Silent.First == s.Silent.Asked && s.False == 0
}

// RunBoard runs it, and tells each row as it comes. That an incident cannot be run
// here is a row; the error is for an interrupt.
func RunBoard(ctx context.Context, b Board, opt Options) (*Score, error) {
	if opt.Out == nil {
		opt.Out = os.Stdout
	}
	asJSON, out := opt.JSON, opt.Out
	print := newPrinter(opt)
	opt.Out, opt.JSON, opt.Brief = silent{}, false, true
	s := &Score{Schema: SchemaScore, Rows: []Row{}}
	started := time.Now()
	seeds := rand.New(rand.NewPCG(uint64(opt.Seed), uint64(started.UnixNano())))
	if opt.Seed != 0 {
		seeds = rand.New(rand.NewPCG(uint64(opt.Seed), 0))
	}
	print.rowHeading()
	for _, run := range b.runs() {
		one := opt
		one.Seed = 1 + seeds.Int64N(1_000_000)
		began := time.Now()
		print.progress(run.name)
		row := run.do(ctx, one)
		row.Tries = 1
		// A machine that others use is no test. What went well all the same did.
		if row.Others > othersMax && !row.ok() && ctx.Err() == nil {
			row = run.do(ctx, one)
			row.Tries = 2
		}
		if ctx.Err() != nil {
			return s, errors.New("lab: interrupted")
		}
		row.Name, row.Seconds = run.name, time.Since(began).Seconds()
		s.add(row)
		print.row(row)
	}
	s.Seconds = time.Since(started).Seconds()
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return s, enc.Encode(s)
	}
	print.score(s)
	return s, nil
}

type silent struct{}

func (silent) Write(p []byte) (int, error) { return len(p), nil }

// boardRun is one row that is to be.
type boardRun struct {
	name string
	do   func(context.Context, Options) Row
}

func (b Board) runs() []boardRun {
	var list []boardRun
	for range max(b.Times, 1) {
		for _, name := range b.Names {
			if p, ok := incident.FindPair(name); ok {
				list = append(list, boardRun{p.Name, func(ctx context.Context, opt Options) Row { return pairRow(ctx, p, opt) }})
				continue
			}
			list = append(list, boardRun{name, func(ctx context.Context, opt Options) Row {
				i, err := incident.Find(name)
				if err != nil {
					return failed("single", opt, err)
				}
				return runRow(ctx, i, kindOf(i), opt)
			}})
		}
	}
	pairs := incident.Pairs()
	for n := range b.Pairs {
		p := pairs[n%len(pairs)]
		list = append(list, boardRun{p.Name, func(ctx context.Context, opt Options) Row { return pairRow(ctx, p, opt) }})
	}
	healthy := incident.Healthy()
	for n := range b.Healthy {
		i := healthy[n%len(healthy)]
		list = append(list, boardRun{i.Name, func(ctx context.Context, opt Options) Row { return runRow(ctx, i, "healthy", opt) }})
	}
	return list
}

func kindOf(i incident.Incident) string {
	switch {
	case strings.HasPrefix(i.Name, incident.HealthyPrefix):
		return "healthy"
	case i.Control:
		return "control"
	case len(i.Phases) > 0:
		return "phases"
	case i.Stepped || len(i.Causes()) > 1:
		return "several"
	}
	return "single"
}

func failed(kind string, opt Options, err error) Row {
	return Row{Kind: kind, Seed: opt.Seed, Verdict: Failed, Expected: []string{}, Found: []string{}, False: []string{},
		Reasons: []string{strings.TrimPrefix(err.Error(), "lab: ")}}
}

// runRow runs an incident and says how slowray did. Of several steps the worst
// counts.
func runRow(ctx context.Context, i incident.Incident, kind string, opt Options) Row {
	r, err := prepare(i, opt)
	if err == nil {
		err = r.acquire(ctx)
	}
	if err != nil {
		return failed(kind, opt, err)
	}
	result, err := r.run(ctx)
	if err != nil {
		return failed(kind, opt, err)
	}
	row := Row{Kind: kind, Seed: result.Seed, Verdict: First, Expected: []string{}, Found: []string{}, False: []string{}, Reasons: append([]string{}, result.Reasons...)}
	if i.Control {
		row.Verdict = Silent
	}
	if len(i.Phases) > 0 && !result.OK {
		row.Verdict = Missed
	}
	for n := range result.Steps {
		row.step(&result.Steps[n])
	}
	if len(row.False) > 0 && i.Control {
		row.Verdict = False
	}
	return row
}

// step adds one step of an incident.
func (row *Row) step(s *StepResult) {
	row.Reasons = append(row.Reasons, s.Reasons...)
	row.False = append(row.False, s.False...)
	if s.Looked != nil {
		row.Others = max(row.Others, s.Looked.Others)
	}
	for _, id := range s.foundCauses() {
		if !slices.Contains(row.Found, id) {
			row.Found = append(row.Found, id)
		}
	}
	if s.Found == nil || s.Found.Problem != "" {
		row.Verdict = Failed
		return
	}
	if s.harmless {
		return
	}
	missed, hurting := false, false
	for _, r := range s.Truth.Removals {
		if !r.Hurts || r.Decoy {
			continue
		}
		hurting = true
		if !slices.Contains(row.Expected, r.Cause) {
			row.Expected = append(row.Expected, r.Cause)
		}
		named := slices.ContainsFunc(append([]string{r.Cause}, r.or...), s.Found.names)
		missed = missed || !named
	}
	best := s.Truth.best()
	switch causes := s.foundCauses(); {
	case missed:
		row.worst(Missed)
	case !hurting && len(s.Truth.Removals) > 0 && row.Kind == "single":
		row.worst(NoHarm)
	case len(best) > 0 && (len(causes) == 0 || !slices.Contains(best, causes[0])):
		row.worst(InList)
	}
}

func (row *Row) ok() bool {
	return (row.Verdict == First || row.Verdict == Silent) && len(row.False) == 0
}

func (row *Row) worst(v Verdict) {
	order := []Verdict{First, NoHarm, InList, Missed, Failed}
	if slices.Index(order, v) > slices.Index(order, row.Verdict) {
		row.Verdict = v
	}
}

func pairRow(ctx context.Context, p incident.Pair, opt Options) Row {
	r, err := RunPair(ctx, p, opt)
	if err != nil {
		return failed("pair", opt, err)
	}
	row := Row{Kind: "pair", Seed: r.Seed, Verdict: First, Expected: r.Hurts, Found: r.Found, False: r.False, Others: r.Others, Reasons: append([]string{}, r.Reasons...)}
	switch {
	case len(r.Hurts) < 2:
		row.Verdict = NoHarm
		row.Reasons = append(row.Reasons, fmt.Sprintf("only %d of the two did measurable harm", len(r.Hurts)))
	case len(r.Missed) > 0:
		row.Verdict = Missed
		row.Reasons = append(row.Reasons, "not found as a cause of its own: "+strings.Join(r.Missed, ", "))
	}
	return row
}

// add counts a row.
func (s *Score) add(row Row) {
	s.Rows = append(s.Rows, row)
	s.False += len(row.False)
	t := &s.Single
	switch row.Kind {
	case "pair":
		t = &s.Pairs
	case "control", "healthy":
		t = &s.Silent
	}
	switch row.Verdict {
	case First, Silent:
		t.First++
	case InList:
		t.InList++
	case Missed:
		t.Missed++
	case NoHarm:
		t.NoHarm++
		return
	case Failed:
		t.Failed++
		return
	}
	t.Asked++
}
