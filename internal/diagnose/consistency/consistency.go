package consistency

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
)

// Check lists what is contradictory in r, in the order of the report.
func Check(r *diagnose.Report) []string {
	c := &checker{}
	for i := range r.Findings {
		c.finding(&r.Findings[i])
	}
	for _, u := range r.RuledOut {
		c.at = u.Cause + ", ruled out"
		c.text(u.Because)
	}
	for _, u := range r.NotChecked {
		c.at = u.Cause + ", not checked"
		c.text(u.Because)
	}
	for i := range r.Endpoints {
		c.endpoint(&r.Endpoints[i])
	}
	c.account(r)
	c.unlinked(r)
	return c.found
}

// denies is which cause, ruled out without a sign of it, a sign of trouble contradicts.
var denies = map[cause.SightKind]cause.ID{
	cause.SightStopped: cause.ProcessStopped, cause.SightQueue: cause.AcceptQueueOverflow, cause.SightThrottled: cause.CPUQuotaThrottled,
}

// unlinked asks whether what was seen, and is no finding, is denied elsewhere, and
// whether nothing is found where much was seen.
func (c *checker) unlinked(r *diagnose.Report) {
	for _, s := range r.Unlinked {
		c.at = "seen, and not linked"
		c.text(s.Text)
		for _, u := range r.RuledOut {
			// Some are judged by services, and by what requests wait for: they say so.
			if u.Cause == string(denies[s.Kind]) && u.Nothing() && !ofServices.MatchString(u.Because) {
				c.add("%q, and %s is ruled out: %s", s.Text, u.Cause, u.Because)
			}
		}
	}
	if c.at = "the account"; len(r.Account.Victims) == 0 && len(r.Unlinked) > 0 {
		c.add("nobody was harmed, and %q is said to be linked to no harm", r.Unlinked[0].Text)
	}
	idle := map[string]string{}
	for _, u := range slices.Concat(r.RuledOut, r.NotChecked) {
		if m := idleCPU.FindStringSubmatch(u.Because); m != nil {
			idle[m[1]] = u.Cause
		}
	}
	if c.at = "ruled out"; len(idle) > 1 {
		c.add("the CPUs were idle %v at once", slices.Sorted(maps.Keys(idle)))
	}
}

// ofServices finds what is said of services, and of what their requests wait for, only.
var ofServices = regexp.MustCompile(`that requests wait for|no service`)

// idleCPU finds how idle the CPUs were over the window.
var idleCPU = regexp.MustCompile(`the CPUs were idle ([\d.]+ %) of the time`)

// account asks whether what was lost adds up, and whether a finding says so where most
// of it has no cause.
func (c *checker) account(r *diagnose.Report) {
	c.at = "the account"
	var lost, explained float64
	for i := range r.Account.Victims {
		x := &r.Account.Victims[i]
		lost += x.Lost
		explained += x.Explained
		var harms float64
		for _, h := range x.Harms {
			harms += h.Seconds
			if h.Requests == 0 || !(h.Seconds > 0) {
				c.add("%d requests of port %d %s, which lost %v s", h.Requests, x.Port, h.Kind, h.Seconds)
			}
		}
		if unlike(harms, x.Lost) || !(x.Explained >= 0 && x.Explained <= x.Lost) {
			c.add("port %d lost %v s, of which %v s, and %v s are explained", x.Port, x.Lost, harms, x.Explained)
		}
		told := slices.ContainsFunc(r.Findings, func(f cause.Finding) bool {
			return f.Cause == cause.Unexplained && f.Subject.NetNS == x.NetNS && f.Subject.Port == x.Port
		})
		if !told && len(r.Findings) == 0 {
			c.add("port %d lost %v s, and nothing was found", x.Port, x.Lost)
		}
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Role == cause.RoleCause && f.Impact.OfTime && f.Impact.Cost != nil && *f.Impact.Cost >= 0.1 && r.Account.Lost == 0 && r.CutShort == "" {
			c.add("%s costs %v s, and nothing was lost", f.Cause, *f.Impact.Cost)
		}
	}
	if unlike(lost, r.Account.Lost) || unlike(explained, r.Account.Explained) {
		c.add("%v s lost, %v s explained; its victims come to %v s and %v s", r.Account.Lost, r.Account.Explained, lost, explained)
	}
}

// unlike says that two sums of rounded figures differ by more than the rounding.
func unlike(a, b float64) bool { return !(math.Abs(a-b) <= 0.01*max(math.Abs(a), math.Abs(b), 0.1)) }

type checker struct {
	at    string // what is being looked at
	found []string
}

func (c *checker) add(format string, args ...any) {
	c.found = append(c.found, c.at+": "+fmt.Sprintf(format, args...))
}

func (c *checker) finding(f *cause.Finding) {
	c.at = string(f.Cause)
	c.share("its impact", f.Impact.Share)
	if f.Impact.Cost != nil && !(*f.Impact.Cost >= 0 && !math.IsInf(*f.Impact.Cost, 0)) {
		c.add("it costs %v s", *f.Impact.Cost)
	}
	if f.Subject.Kind == "process" && f.Subject.PID <= 0 {
		c.add("it is about process %d", f.Subject.PID)
	}
	for i := range f.Chain {
		if f.Chain[i].Process.PID <= 0 {
			c.add("hop %d of its chain is process %d", i, f.Chain[i].Process.PID)
		}
	}
	for _, text := range []string{f.Title, f.Impact.Text, f.Fix.Text, f.ChainEnd} {
		c.text(text)
	}
	for i := range f.Evidence {
		e := &f.Evidence[i]
		if e.Source == "log" {
			continue // the words of others: MariaDB writes "2026-11-26  1:24:34"
		}
		c.text(e.Fact + ": " + figure.Evidence(e.Value, e.Limit, e.Unit))
	}
	for _, command := range slices.Concat(f.Fix.Commands, f.Fix.Persist) {
		if text := command.String(); noProcess.MatchString(text) {
			c.add("a command names no process: %s", text)
		} else if entersMounts.MatchString(text) {
			c.add("a command runs a program of somebody else's mount namespace: %s", text)
		}
	}
}

func (c *checker) endpoint(e *diagnose.Endpoint) {
	c.at = fmt.Sprintf("%s %s port %d", e.Side, e.Addr, e.Port)
	for _, part := range []struct {
		what string
		of   *int64
	}{{"errors", e.Errors}, {"unanswered requests", &e.Unanswered}, {"recorded requests", e.Recorded}} {
		if part.of != nil && e.Requests != nil && (*part.of < 0 || *part.of > *e.Requests) {
			c.add("%d %s of %d", *part.of, part.what, *e.Requests)
		}
	}
	if e.Loss != nil && !(*e.Loss >= 0 && *e.Loss <= 1000) {
		c.add("a loss of %v per thousand", *e.Loss)
	}
}

func (c *checker) share(what string, s float64) {
	if !(s >= 0 && s <= 1) {
		c.add("%s is a share of %v", what, s)
	}
}

var (
	// partOf finds "3 of 2", "1,200 of its 1,000", "1.2 s of 1 s". What a limit is
	// exceeded by says so in other words.
	partOf = regexp.MustCompile(`(\d[\d,]*(?:\.\d+)?)(?: (ns|µs|ms|s|min|h|kB|MB|GB))? of (?:its |their |the |all )?(\d[\d,]*(?:\.\d+)?)(?: (ns|µs|ms|s|min|h|kB|MB|GB)\b)?`)
	// noProcess finds a process without a number, or with that of none.
	noProcess = regexp.MustCompile(`\(pid 0\b| \(pid\s*\)|/proc/0?/|\bkill (-\w+ )?0?$`)
	// entersMounts finds what runs a program where its owner has put it (SECURITY.md, 5).
	entersMounts = regexp.MustCompile(`\bnsenter(?: --(?:net|target|ipc|uts|pid|setuid)(?:[= ]\S+)?| -[tn] ?\S*)* (?:--all|--mount|-a|-m)\b`)
	// noFigure finds what fmt and the arithmetic write where there is none.
	noFigure = regexp.MustCompile(`\bNaN\b|[+-]Inf\b|<nil>|%!`)
	// noName finds where a name should stand.
	noName = regexp.MustCompile(`[^.:]  \S|\W\(\s*\)| ,|""|''|\bon :0\b`)
	// percentage finds "120 %".
	percentage = regexp.MustCompile(`(\d[\d,]*(?:\.\d+)?) %`)
)

func (c *checker) text(text string) {
	for _, m := range partOf.FindAllStringSubmatch(text, -1) {
		if m[2] != m[4] && m[2] != "" {
			continue // of another unit
		}
		if number(m[1]) > number(m[3]) {
			c.add("%q in: %s", m[0], text)
		}
	}
	for _, m := range percentage.FindAllStringSubmatch(text, -1) {
		if number(m[1]) > 100 {
			c.add("%q in: %s", m[0], text)
		}
	}
	for what, pattern := range map[string]*regexp.Regexp{"no process": noProcess, "no figure": noFigure, "no name": noName} {
		if pattern.MatchString(text) {
			c.add("%s in: %s", what, text)
		}
	}
}

func number(text string) float64 {
	n, _ := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	return n
}
