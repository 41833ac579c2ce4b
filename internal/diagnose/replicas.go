package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// replicated is a subject without what differs between the pods of one workload, where it
// is in a pod that a controller made: they are fixed in one manifest.
func replicated(s cause.Subject) cause.Subject {
	w := s.Workload
	if w.Name == "" || w.Kind == "" || w.Kind == "Pod" {
		return s
	}
	s.Workload = observe.Workload{Namespace: w.Namespace, Container: w.Container, Kind: w.Kind, Name: w.Name}
	s.PID, s.NetNS, s.Container = 0, 0, ""
	if s.Kind == "cgroup" {
		s.Path = ""
	}
	if s.Kind != "destination" && !strings.HasPrefix(s.Addr, "unix:") {
		s.Addr = ""
	}
	return s
}

// joinReplicas makes one finding of those about the same cause in pods of one workload: the
// one that weighs most, with what it costs in all of them.
func joinReplicas(findings []cause.Finding) []cause.Finding {
	var out []cause.Finding
	same := map[Identity][]int{} // places in out
	parts := map[int][]cause.Finding{}
	for i := range findings {
		f := &findings[i]
		id := IdentityOf(f)
		at := slices.IndexFunc(same[id], func(at int) bool {
			return f.Subject.Workload.Pod != "" && out[at].Role == f.Role && (f.ConsequenceOf == nil || *out[at].ConsequenceOf == *f.ConsequenceOf)
		})
		if at < 0 {
			same[id] = append(same[id], len(out))
			out = append(out, *f)
			continue
		}
		at = same[id][at]
		if parts[at] == nil {
			parts[at] = []cause.Finding{out[at]}
		}
		parts[at] = append(parts[at], *f)
	}
	for at, list := range parts {
		out[at] = joined(list)
	}
	return out
}

// joined is one finding of several, each of which is about another pod of one workload, or
// about another container that the same pod had.
func joined(list []cause.Finding) cause.Finding {
	slices.SortStableFunc(list, func(a, b cause.Finding) int {
		return cmp.Or(cmp.Compare(costOf(&b), costOf(&a)), cmp.Compare(b.Weight, a.Weight))
	})
	f := list[0]
	f.Evidence, f.Fix.Changes = slices.Clone(f.Evidence), slices.Clone(f.Fix.Changes)
	var cost, ofWeight, ofShare float64 // s; and the time that a weight, a share is one of
	for i := range list {
		x := &list[i]
		f.Began, f.Asked = earlier(f.Began, x.Began), earlier(f.Asked, x.Asked)
		if c := costOf(x); c > 0 && x.Weight > 0 && x.Impact.Share > 0 {
			cost, ofWeight, ofShare = cost+c, ofWeight+c/x.Weight, ofShare+c/x.Impact.Share
		}
		for _, c := range x.Fix.Changes {
			if !slices.Contains(f.Fix.Changes, c) {
				f.Fix.Changes = append(f.Fix.Changes, c)
			}
		}
		at := slices.IndexFunc(f.Pods, func(p cause.PodShare) bool { return p.Pod == x.Subject.Workload.Pod })
		if at < 0 {
			f.Pods = append(f.Pods, cause.PodShare{Pod: x.Subject.Workload.Pod, PID: x.Subject.PID, Share: x.Impact.Share, Cost: x.Impact.Cost})
		}
	}
	if cost > 0 {
		sum := math.Round(1000*cost) / 1000
		f.Impact.Cost = &sum
		f.Weight, f.Impact.Share = min(1, cost/ofWeight), math.Round(1000*min(1, cost/ofShare))/1000
	}
	if len(f.Pods) == 1 {
		f.Pods = nil
		f.Impact.Text = fmt.Sprintf("%d containers that the pod had, most in one: %s", len(list), f.Impact.Text)
		return f
	}
	w := f.Subject.Workload
	w.Pod = ""
	f.Impact.Text = fmt.Sprintf("%d pods, most in %s: %s", len(f.Pods), f.Pods[0].Pod, f.Impact.Text)
	f.Evidence = append(f.Evidence, cause.Evidence{Fact: "pods of " + w.ContainerText() + " in which it was found", Value: len(f.Pods), Unit: "pods", Source: "control groups of the pods"},
		cause.Evidence{Fact: "the pod that loses most", Value: f.Pods[0].Pod, Source: "control groups of the pods"})
	return f
}

// earlier is the earlier of two moments, of which either may not be known.
func earlier(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	if *b < *a {
		return b
	}
	return a
}
