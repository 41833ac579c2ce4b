package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// The causes that are judged by system calls that fail: the host lacks what the
// service asks for. They are found only where requests fail, or get no answer,
// and where the calls fail about as often as the requests do. What fails
// without a request failing is a warning, and told among what is ruled out.

// lack is calls of the processes behind an endpoint that failed for one thing.
type lack struct {
	l      *ledger
	errors []*observe.CallError // most calls first
	calls  uint64               // that failed, as far as watched
	all    float64              // that failed in the window, estimated
	failed uint64               // requests
}

// failedRequests is the requests that got an error, or no answer.
func (l *ledger) failedRequests() uint64 { return l.Errors + l.Unanswered }

// explained is the share of the failed requests that a lack explains.
func (k *lack) explained() float64 { return ratio(k.all, float64(k.failed)) }

// first is what fails most.
func (k *lack) first() *observe.CallError { return k.errors[0] }

// judgeLack looks for failing calls that match, and for requests that fail with
// them. none says what is known where no call failed; describe completes the
// finding.
func (v *View) judgeLack(match func(*observe.CallError) bool, none string, describe func(*lack, *Finding)) Result {
	if v.ErrorSeconds == 0 {
		return Result{NotChecked: "system calls that fail were not watched"}
	}
	var matching []*observe.CallError
	for i := range v.CallErrors {
		if e := &v.CallErrors[i]; match(e) {
			matching = append(matching, e)
		}
	}
	if len(matching) == 0 {
		return ruledOut(none)
	}
	slices.SortStableFunc(matching, func(a, b *observe.CallError) int { return cmp.Compare(b.Calls, a.Calls) })
	var best *lack
	because := v.callErrorText(matching[0]) + ", and it answers no requests"
	nearest := uint64(0)
	for _, k := range v.lacksOf(matching) {
		if why := k.harmless(v); why != "" {
			if best == nil && (nearest == 0 || k.l.Requests > nearest) {
				because, nearest = v.callErrorText(k.first())+", "+why, max(k.l.Requests, 1)
			}
			continue
		}
		if best == nil || k.weight() > best.weight() {
			best = k
		}
	}
	if best == nil {
		return ruledOut(because)
	}
	return Result{Findings: []Finding{v.lackFinding(best, describe)}}
}

// lacksOf sorts failing calls by the served endpoints behind which they fail: of
// the processes that answer there, and of those on this host that they call. In
// the order of the ledgers.
func (v *View) lacksOf(matching []*observe.CallError) []*lack {
	lacks := map[*ledger]*lack{}
	add := func(l *ledger, e *observe.CallError) {
		k := lacks[l]
		if k == nil {
			k = &lack{l: l, failed: l.failedRequests()}
			lacks[l] = k
		}
		if n := len(k.errors); n == 0 || k.errors[n-1] != e {
			k.errors = append(k.errors, e)
			k.calls += e.Calls
		}
	}
	dependents := map[int][]int{}
	for _, e := range matching {
		for _, l := range v.members[e.PID] {
			add(l, e)
		}
		master := v.Master(e.PID)
		if _, known := dependents[master]; !known {
			dependents[master] = v.callGraph().dependents(master)
		}
		for _, pid := range dependents[master] {
			for _, l := range v.servedOf[pid] {
				add(l, e)
			}
		}
	}
	var out []*lack
	for _, l := range v.ledgers {
		if k := lacks[l]; k != nil {
			k.all = float64(k.calls) * max(v.Window.Seconds, v.ErrorSeconds) / v.ErrorSeconds
			out = append(out, k)
		}
	}
	return out
}

func (k *lack) weight() float64 {
	return ratio(k.failed, k.l.Requests) * k.explained()
}

// harmless says why failing calls are not to blame for failed requests; empty
// when they are.
func (k *lack) harmless(v *View) string {
	share := ratio(k.failed, k.l.Requests)
	switch {
	case k.failed == 0 && k.l.OK == 0 && k.l.Requests > 0:
		return fmt.Sprintf("but whether requests on %s fail is not known: the protocol is not, or it is encrypted", k.l.name())
	case k.failed == 0:
		return fmt.Sprintf("but none of %s failed", k.l.all())
	case k.failed < fewRequests || share < noiseShare:
		return fmt.Sprintf("but only %s of %s failed", count(k.failed), k.l.all())
	case k.calls < fewAffected:
		return fmt.Sprintf("and %s of %s failed, but so few calls were seen to fail that they may have nothing to do with it", count(k.failed), k.l.all())
	case k.explained() < dominantShare:
		return fmt.Sprintf("but %s of %s failed, far more than these calls can explain (about %s)", count(k.failed), k.l.all(), count(uint64(k.all)))
	case k.all > callsMore*float64(k.failed) && share < mostFail:
		return fmt.Sprintf("about %s times in the window, but only %s of %s failed: most are answered all the same", count(uint64(k.all)), count(k.failed), k.l.all())
	}
	return ""
}

// pathText names the file of a failing call, or what is known of it.
func pathText(e *observe.CallError) string {
	if e.Mount != "" && !strings.HasPrefix(e.Path, "/") {
		return e.Path + ", on " + e.Mount
	}
	return e.Path
}

// callErrorText tells one kind of failing call.
func (v *View) callErrorText(e *observe.CallError) string {
	s := fmt.Sprintf("%s() of %s (pid %d) failed %s times with %s in %s of the window", e.Call, e.Comm, e.PID, count(e.Calls), e.Error, seconds(v.ErrorSeconds))
	if e.Path != "" {
		s += " (" + pathText(e) + ")"
	}
	return s
}

func (v *View) lackFinding(k *lack, describe func(*lack, *Finding)) Finding {
	e := k.first()
	f := supported(Subject{Kind: "process", PID: e.PID, Comm: e.Comm, NetNS: k.l.NetNS})
	if v.Master(e.PID) == k.l.pid {
		f.Subject.Port = k.l.Port
	}
	f.Weight = k.weight()
	f.Impact = Impact{Share: round(ratio(k.failed, k.l.Requests)), Of: "requests",
		Text: fmt.Sprintf("%s of %s failed, and %s() failed about %s times in %s with %s", count(k.failed), k.l.all(), e.Call, count(uint64(k.all)), v.Comm(v.Master(e.PID)), e.Error)}
	for _, e := range k.errors[:min(len(k.errors), 4)] {
		f.Evidence = append(f.Evidence, Evidence{Fact: fmt.Sprintf("%s() of %s (pid %d) failed with %s", e.Call, e.Comm, e.PID, e.Error), Value: e.Calls,
			Unit: "calls in " + seconds(v.ErrorSeconds) + " of the window", Source: "results of system calls"})
		if e.Path != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "the first of them, on", Value: pathText(e), Source: "/proc/PID/fd, or the call's argument"})
		}
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "requests answered with an error, or not at all", Value: k.failed, Limit: k.l.Requests, Unit: "requests on " + k.l.name(), Source: recorded})
	describe(k, &f)
	return f
}

// elsewhere says that a process sees other mounts than who reads the report. What is
// pasted may run as root of the host, with all its rights: it must not enter there, where the
// programs are those of a container or of an ordinary user.
func (v *View) elsewhere(mountNS uint64) bool {
	return mountNS != 0 && v.Host.MountNS != 0 && mountNS != v.Host.MountNS
}

// seenAt is where programs of the host find a path of a process.
func (v *View) seenAt(pid int, mountNS uint64, name string) shell.Path {
	if v.elsewhere(mountNS) {
		return shell.Path(fmt.Sprintf("/proc/%d/root%s", pid, name))
	}
	return shell.Path(name)
}
