package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/lab/blind"
	"github.com/slowray/slowray/lab/grammar"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// Draws is what a blind benchmark goes through.
type Draws struct {
	Count   int    // draws with a fault that hurts
	Healthy int    // draws without one
	From    int    // number of the first; default 1
	Only    bool   // that one, whether it hurts or not
	Kind    string // of fault; empty = any
	Out     string // file to which each result is added
}

// redraws is how many draws in a row may do no harm.
const redraws = 12

// Bench draws incidents, measures what hurts in each, has slowray look, tries the fix of
// what it names first, and gives what became of each. The error is for what kept it from
// going on.
func Bench(ctx context.Context, d Draws, opt Options) ([]blind.Result, error) {
	if opt.Out == nil {
		opt.Out = os.Stdout
	}
	print := newPrinter(opt)
	if opt.Seed == 0 {
		opt.Seed = time.Now().UnixNano() % 1_000_000_000
	}
	d.From = max(d.From, 1)
	print.printf("seed %d\n", opt.Seed)
	var results []blind.Result
	for _, part := range []struct {
		want    int
		healthy bool
	}{{d.Count, false}, {d.Healthy, true}} {
		in := 0
		for n := d.From; in < part.want && n < d.From+part.want+redraws; n++ {
			r, err := benchOne(ctx, d, opt, n, part.healthy)
			if err != nil {
				return results, err
			}
			results = append(results, r)
			if r.Counts() || d.Only {
				in++
			}
			print.draw(r)
			if d.Out != "" {
				if err := blind.Append(d.Out, r); err != nil {
					return results, err
				}
			}
		}
	}
	return results, nil
}

func benchOne(ctx context.Context, d Draws, opt Options, n int, healthy bool) (blind.Result, error) {
	started := time.Now()
	draw := grammar.New(opt.Seed, n, healthy)
	if d.Kind != "" {
		var err error
		if draw, err = grammar.NewOf(d.Kind, opt.Seed, n, healthy); err != nil {
			return blind.Result{}, fmt.Errorf("lab: %w", err)
		}
	}
	result := blind.Result{Seed: opt.Seed, Number: n, Kind: d.Kind, Healthy: healthy, Shape: draw.Shape, Expected: []string{}, Findings: []blind.Finding{}}
	one := opt
	one.Seed = 1 + opt.Seed*1000 + int64(n)
	one.Out, one.Brief = silent{}, true
	if opt.Save != "" {
		kept, err := os.MkdirTemp(opt.Save, "draw-")
		if err != nil {
			return result, err
		}
		defer os.Remove(kept) // where nothing is kept
		one.Save = kept
	}
	r, err := prepare(draw.Incident, one)
	if err == nil {
		r.patience = 0 // see alike
		err = r.acquire(ctx)
	}
	if err == nil {
		err = func() error {
			defer r.lock.Release()
			return r.bench(ctx, draw, &result)
		}()
	}
	if ctx.Err() != nil {
		return result, errors.New("lab: interrupted")
	}
	if err != nil {
		result.Verdict, result.Problem = blind.Failed, strings.TrimPrefix(err.Error(), "lab: ")
	}
	result.Seconds = time.Since(started).Seconds()
	result.Main, result.Machine = built(), machine()
	result.Observed = keep(one.Save, opt.Save, &result)
	return result, nil
}

// built is the commit that this program, and slowray next to it, were built from.
func built() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 10)]
		}
	}
	return ""
}

func machine() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d CPUs, Linux %s", runtime.NumCPU(), strings.TrimSpace(string(release)))
}

// keep moves what slowray saw in a draw that is not right to where it is kept.
func keep(from, to string, r *blind.Result) string {
	if from == "" {
		return ""
	}
	files, _ := filepath.Glob(filepath.Join(from, "*"))
	for _, f := range files {
		wrong := r.Counts() && (r.Verdict != blind.First && r.Verdict != blind.Silent || len(r.Blamed) > 0 || len(r.Against) > 0 || !r.Healthy && !r.Subject)
		if !wrong {
			os.Remove(f)
			continue
		}
		kept := filepath.Join(to, fmt.Sprintf("%d-%d-%s.json.zst", r.Seed, r.Number, r.Shape.Kind))
		if os.Rename(f, kept) == nil {
			return kept
		}
	}
	return ""
}

// seen is what one look of a draw came to.
type benchLook struct {
	report *Report
	sample Sample // meanwhile
	fixed  *Sample
	fix    tried
	hops   hopPlaces
	within map[uint64]bool // network namespaces of the sandbox, but for those of hops
}

// bench runs one draw.
func (r *runner) bench(ctx context.Context, d grammar.Draw, out *blind.Result) error {
	look, err := r.benchLook(ctx)
	if err != nil {
		return err
	}
	report := look.report
	out.WindowS = r.opt.Window.Seconds()
	out.LateS, out.CPUS, out.Others = report.Late.Seconds(), report.cpu.Seconds(), look.sample.Others
	out.Lost, out.Explains, out.Against = report.Account.Lost, report.Account.Explained, report.Against
	out.Findings = findingsOf(report) // before what is said of others is left out
	step := StepResult{Name: r.Name, Looked: &look.sample, Found: report, harmless: r.Control}
	step.Truth.Base.Samples = []Sample{look.sample}
	for n, f := range r.Faults {
		removal := Removal{Fault: f.Name, Cause: f.Cause, or: f.Or}
		if err := r.measureInto(ctx, &removal.Measure, "without "+f.Name, slices.Delete(slices.Clone(r.Faults), n, n+1)); err != nil {
			return err
		}
		alike(&removal.Measure)
		step.Truth.Removals = append(step.Truth.Removals, removal)
	}
	alike(&step.Truth.Base)
	step.Truth.decide()
	hurts := slices.DeleteFunc(slices.Clone(step.Truth.Removals), func(x Removal) bool { return !x.Hurts })
	if !r.Control && len(hurts) == 0 {
		out.Verdict = blind.NoHarm
		return nil
	}
	if report.Problem != "" {
		return errors.New(report.Problem)
	}
	judge(&step, r.Incident, r.Faults)
	out.Reasons = step.Reasons
	for _, id := range step.False { // what is only told as a consequence blames nobody
		if report.blames([]string{id}) && !slices.Contains(out.Blamed, id) {
			out.Blamed = append(out.Blamed, id)
		}
	}
	best := step.Truth.best()
	for _, x := range hurts {
		if !slices.Contains(best, x.Cause) {
			best = append(best, x.Cause)
		}
	}
	out.Expected = append(out.Expected, best...)
	r.verdict(d, &look, &step, out)
	return nil
}

// alike takes what other programs did meanwhile for the same with the fault and without:
// the two were measured one right after the other, and what a fault of a draw costs is
// far more than the difference.
func alike(m *Measure) {
	for n := range m.Samples {
		m.Samples[n].Others = 0
	}
}

// verdict says what became of the draw.
func (r *runner) verdict(d grammar.Draw, look *benchLook, step *StepResult, out *blind.Result) {
	kept := func(id string) bool { return look.report.names(id) } // not forgiven as others' doing
	out.Findings = slices.DeleteFunc(out.Findings, func(f blind.Finding) bool { return !kept(f.Cause) })
	if r.Control {
		out.Verdict = blind.Silent
		if len(out.Findings) > 0 {
			out.Verdict = blind.Blamed
		}
		return
	}
	best := step.Truth.best()
	out.Verdict = blind.Rank(out.Findings, best)
	hurt := map[string]bool{}
	for n, x := range step.Truth.Removals {
		if x.Hurts {
			for _, id := range append(append([]string{x.Cause}, x.or...), r.Faults[n].Alongside...) {
				hurt[id] = true
			}
		}
	}
	first := true
	for n := range out.Findings {
		f := &out.Findings[n]
		at := slices.IndexFunc(look.report.Findings, func(x Finding) bool { return x.Cause == f.Cause && x.Role == f.Role })
		right := at >= 0 && look.about(d, &look.report.Findings[at])
		f.Right = hurt[f.Cause] && right
		if slices.Contains(best, f.Cause) && first {
			out.Subject, first = right, false
			if !right {
				out.Reasons = append(out.Reasons, fmt.Sprintf("%s is about %+v", f.Cause, look.report.Findings[at].Subject))
			}
		}
	}
	out.FixBy, out.Proof = look.fix.by, look.fix.proof
	switch {
	case look.fix.works != nil && *look.fix.works:
		out.Fix = blind.FixWorks
	case look.fix.works != nil:
		out.Fix = blind.FixFails
	case look.fixed != nil:
		removal := Removal{Measure: Measure{Samples: []Sample{*look.fixed}}}
		out.Fix = blind.FixFails
		if removal.removes(step.Truth) {
			out.Fix = blind.FixWorks
		}
	default:
		out.Fix = blind.FixNone
	}
}

// fixes says whether a fix gave what removing the fault gives, for the most part: more
// than what a look of slowray's, which is over, took.
func (r *Removal) removes(t Truth) bool {
	r.compare(t.Base)
	for _, x := range t.Removals {
		if !x.Best || !r.Hurts {
			continue
		}
		before, after := t.Base.Median(), x.Measure.Median()
		if x.faster && r.Measure.Median() < before+(after-before)/2 {
			return false
		}
		if before, after := t.Base.P99(), x.Measure.P99(); before >= tailMin && after <= before/2 && r.Measure.P99() > before/2 {
			return false
		}
		if before, after := t.Base.BadShare(), x.Measure.BadShare(); before >= badShare && after <= badDrop*before && r.Measure.BadShare() > (before+after)/2 {
			return false
		}
	}
	return r.Hurts
}

// findingsOf lists what was found, with what its confidence is made of.
func findingsOf(report *Report) []blind.Finding {
	list := []blind.Finding{}
	for n, f := range report.whole.Findings {
		list = append(list, blind.Finding{Cause: string(f.Cause), Role: string(f.Role), Confidence: f.Confidence, Features: diagnose.Features(&report.whole, n)})
	}
	return list
}

// hopPlaces is where the hops of a sandbox are.
type hopPlaces struct {
	of    map[int]int    // hop of a process, by its pid on the host
	netns map[int]uint64 // of a hop
}

// about says whether a finding is about what it has to be about.
func (l *benchLook) about(d grammar.Draw, f *Finding) bool {
	s, w := f.Subject, d.Where
	if s.Kind == "host" || s.Kind == "disk" {
		return true
	}
	if w.Hop < 0 {
		return l.within[s.NetNS] && (len(w.Comms) == 0 || s.PID == 0 || slices.Contains(w.Comms, s.Comm))
	}
	if s.PID == 0 {
		ns := l.hops.netns[w.Hop]
		return s.NetNS == 0 || ns == 0 || s.NetNS == ns || s.NetNS == l.hops.netns[w.Hop-1]
	}
	hop, is := l.hops.of[s.PID]
	if slices.Contains(w.Comms, s.Comm) {
		return true
	}
	// Who calls what is gone has the finding.
	gone := d.Injected(d.Faults).Hops[w.Hop].Gone
	return is && (hop == w.Hop || gone && hop == w.Hop-1)
}

// findHops finds the processes of hops below the sandbox's init: by the variable that
// they were started with, or their parent was.
func findHops(box *sandbox.Box) hopPlaces {
	p := hopPlaces{of: map[int]int{}, netns: map[int]uint64{}}
	parent := parents()
	inside := below(parent, box.PID())
	started := map[int]int{} // hop of a process, by its own variable
	for pid := range inside {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		_, value, ok := strings.Cut("\x00"+string(environ), "\x00"+server.HopEnv+"=")
		var hop int
		if _, err := fmt.Sscan(strings.SplitN(value, "\x00", 2)[0], &hop); ok && err == nil {
			started[pid] = hop
		}
	}
	for pid := range inside {
		for up := pid; inside[up]; up = parent[up] {
			if hop, ok := started[up]; ok {
				p.of[pid] = hop
				break
			}
		}
	}
	for pid, hop := range p.of {
		var inode uint64
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
			fmt.Sscanf(link, "net:[%d]", &inode)
		}
		if inode != 0 {
			p.netns[hop] = inode
		}
	}
	return p
}
