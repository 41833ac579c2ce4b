package lab

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// consequences are what follows from a fault and may be named next to it.
var consequences = []string{
	"nginx-upstream-errors", "error-answers", "client-aborts", "syn-cookies-sent", "slow-dependency", "request-waves",
	"syn-retransmits", "accept-queue-wait", "accept-queue-overflow", "application-slow-to-read", "network-loss", "rto-tail-loss",
	"run-queue-wait", "event-loop-blocked", "connect-timeout", "upstream-refused", "blocked-on-remote", "dns-timeout", "dns-slow",
	"cpu-hot-function", "thread-pool-exhausted", "php-fpm-children-exhausted", "gunicorn-workers-busy",
}

// lateLimit is how long slowray may take from the end of its window to its
// verdict.
const lateLimit = 2 * time.Second

// judge compares what slowray found with what is injected and what of it hurts.
// The rules:
//
//  1. Where nothing but harmless things is injected, there is no finding.
//  2. No finding of role cause names what is not injected, or as true as that.
//     One of role consequence names an injected fault or a known consequence.
//  3. Every injected fault that hurts is found. One that neither hurts nor is found
//     tests nothing.
//  4. The first finding of role cause is the fault whose removal helps most,
//     by its own name or by another one it may have.
//     If no single removal helps beyond noise, it may be any injected one.
//  5. A decoy is among what is ruled out.
//  6. A finding's subject is in the namespace of the servers, of their backend
//     or of a router between them, or in that of the clients if only their end can see it.
//
// That the CPUs are taken by others is no wrong answer where the lab saw it too.
func judge(s *StepResult, i incident.Incident, faults []incident.Fault) {
	s.notes(i)
	if s.Found == nil {
		s.OK = true
		return
	}
	if s.Found.Problem != "" {
		s.mismatch("%s", s.Found.Problem)
		return
	}
	s.forgiveOthers()
	var injected []incident.Fault // what slowray may name
	for _, f := range faults {
		if !f.Decoy && !i.Control {
			injected = append(injected, f)
		}
		if f.Decoy && !s.Found.rulesOut(f.RuledOut) {
			s.mismatch("%s is not among what is ruled out", f.RuledOut)
		}
	}
	for _, against := range s.Found.Against { // internal/diagnose/consistency
		s.mismatch("the report contradicts itself: %s", against)
	}
	s.allowed(injected)
	s.complete()
	s.first()
	s.places(injected)
	s.words(injected)
	s.OK = len(s.Reasons) == 0
}

func (s *StepResult) mismatch(format string, args ...any) {
	s.OK = false
	s.Reasons = append(s.Reasons, fmt.Sprintf(format, args...))
}

func (s *StepResult) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// ofOthers are causes by which programs outside the sandbox may be named, when
// they use the CPUs.
var ofOthers = []string{"cpu-saturated", "run-queue-wait", "short-lived-process-storm"}

// forgiveOthers leaves out what slowray rightly says of programs outside the
// sandbox: of others, where the lab saw them too, and of the lab itself, which
// counts the packets of its namespaces while slowray looks.
func (s *StepResult) forgiveOthers() {
	others := s.Looked != nil && s.Looked.Others > othersMax
	if others {
		s.note("other programs took %.0f %% of the CPUs while slowray looked", 100*s.Looked.Others)
	}
	s.Found.Findings = slices.DeleteFunc(s.Found.Findings, func(f Finding) bool {
		injected := slices.ContainsFunc(s.Truth.Removals, func(r Removal) bool { return r.Cause == f.Cause })
		if !slices.Contains(ofOthers, f.Cause) || injected && !s.harmless {
			return false
		}
		lab := f.Subject.PID == os.Getpid()
		if lab {
			s.note("%s names the lab itself", f.Cause)
		}
		return others || lab
	})
}

// allowed checks rules 1 and 2.
func (s *StepResult) allowed(injected []incident.Fault) {
	for _, f := range s.Found.Findings {
		isInjected := slices.ContainsFunc(injected, func(p incident.Fault) bool {
			return p.Cause == f.Cause || slices.Contains(p.Or, f.Cause) || slices.Contains(p.Alongside, f.Cause)
		})
		switch {
		case isInjected:
		case len(injected) == 0:
			s.False = append(s.False, f.Cause)
			s.mismatch("%s is found, and nothing harmful is injected", f.Cause)
		case f.Role == "consequence" && slices.Contains(consequences, f.Cause):
		default:
			s.False = append(s.False, f.Cause)
			s.mismatch("%s is found (as %s) and is not injected", f.Cause, f.Role)
		}
	}
}

// judgeOthers judges what slowray found when it looked again. The first that
// disagrees is the one that is shown.
func (s *StepResult) judgeOthers(reports []*Report, i incident.Incident, faults []incident.Fault) {
	agreed := 0
	if s.OK {
		agreed++
	}
	for n, report := range reports {
		again := *s
		again.Found, again.OK, again.Reasons, again.Notes, again.False = report, false, nil, nil, nil
		judge(&again, i, faults)
		if again.OK {
			agreed++
			continue
		}
		if s.OK {
			s.OK, s.Found, s.Reasons = false, report, nil
			for _, reason := range again.Reasons {
				s.Reasons = append(s.Reasons, fmt.Sprintf("look %d: %s", n+2, reason))
			}
		}
	}
	s.note("%d of %d looks agree", agreed, len(reports)+1)
}

// complete checks rule 3.
func (s *StepResult) complete() {
	for _, r := range s.Truth.Removals {
		if r.Hurts && r.Cause != "" && !s.control(r) && !s.Found.names(r.Cause) {
			s.mismatch("%s hurts (%s) and is not found", r.Cause, strings.Join(r.Why, ", "))
		}
	}
	if s.stepped {
		return
	}
	for _, r := range s.Truth.Removals {
		if s.control(r) || r.Hurts || slices.ContainsFunc(append([]string{r.Cause}, r.or...), s.Found.names) {
			return
		}
	}
	if len(s.Truth.Removals) > 0 {
		s.mismatch("nothing that is injected does measurable harm or is found: this tests nothing")
	}
}

// first checks rule 4.
func (s *StepResult) first() {
	best := s.Truth.best()
	if len(best) == 0 || s.harmless {
		return
	}
	for _, f := range s.Found.Findings {
		if f.Role != "cause" {
			continue
		}
		if !slices.Contains(best, f.Cause) {
			s.mismatch("%s is found first; removing %s helps most (what follows from what: Class and ConsequenceOf of the declarations)", f.Cause, strings.Join(best, " or "))
		}
		return
	}
	s.mismatch("no finding of role cause; removing %s helps most", strings.Join(best, " or "))
}

// places checks rule 6.
func (s *StepResult) places(injected []incident.Fault) {
	for _, f := range s.Found.Findings {
		ns := f.Subject.NetNS
		if ns == 0 || ns == s.Found.netns || s.Found.netns == 0 || ns == s.Found.backend || slices.Contains(s.Found.routers, ns) || f.Subject.Kind == "host" {
			continue
		}
		where := fmt.Sprintf("network namespace %d", ns)
		if ns == s.Found.clients {
			if slices.ContainsFunc(injected, func(p incident.Fault) bool { return p.AtClients && p.Cause == f.Cause }) {
				continue
			}
			if f.Role == "consequence" && slices.Contains(consequences, f.Cause) {
				continue // what the clients feel of it
			}
			where = "the network namespace of the load"
		}
		s.mismatch("%s is found in %s (%s %d), not in that of the servers", f.Cause, where, f.Subject.Comm, f.Subject.PID)
	}
}

// words notes a finding that does not say which of several limits binds, and a
// verdict that came late.
func (s *StepResult) words(injected []incident.Fault) {
	for _, p := range injected {
		for _, f := range s.Found.Findings {
			if f.Cause == p.Cause && p.Says != "" && !strings.Contains(f.text, p.Says) {
				s.note("%s does not mention %q", f.Cause, p.Says)
			}
		}
	}
	if s.Found.Late > lateLimit {
		s.note("the verdict came %s after the window", short(s.Found.Late))
	}
}

// notes says where the injected faults were not what their names promise.
func (s *StepResult) notes(i incident.Incident) {
	s.harmless, s.stepped = i.Control, i.Stepped
	for _, r := range s.Truth.Removals {
		switch {
		case r.Hurts && (i.Control || r.Decoy):
			s.note("%s is meant to be harmless, and seemed to hurt: %s", r.Fault, strings.Join(r.Why, ", "))
		case !r.Hurts && !i.Control && !r.Decoy && !i.Stepped:
			s.note("%s did no measurable harm", r.Fault)
		}
	}
}

func (s *StepResult) control(r Removal) bool { return s.harmless || r.Decoy }

func (t Truth) best() []string {
	var causes []string
	for _, r := range t.Removals {
		if r.Best && !r.Decoy {
			causes = append(append(causes, r.Cause), r.or...)
		}
	}
	return causes
}

func (r *Report) names(cause string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Cause == cause })
}

// rulesOut reports whether the words are in an entry of what is ruled out,
// with any of "-", "_" and " " between them.
func (r *Report) rulesOut(words string) bool {
	plain := strings.NewReplacer("-", "_", " ", "_")
	return slices.ContainsFunc(r.RuledOut, func(x Ruling) bool {
		return strings.Contains(plain.Replace(x.Cause+" "+x.Because), plain.Replace(words))
	})
}
