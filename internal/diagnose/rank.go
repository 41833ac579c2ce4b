package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/cause"
)

// fullCost is the part of what the most expensive cause cost from which on a finding
// counts with all its weight. Costs are estimates: what is within a factor of a
// few is reported by its share.
const fullCost = 0.2

// rank orders findings: causes before consequences, and of each the one first
// that is worth most on the host, by its weight and what it cost.
func rank(findings []cause.Finding, catalogue []cause.Cause) []cause.Finding {
	in := make([]*cause.Finding, len(findings)) // a finding is large, and moves at each step of a sort
	for i := range findings {
		in[i] = &findings[i]
	}
	Rank(in, catalogue, func(f *cause.Finding) *cause.Finding { return f })
	out := make([]cause.Finding, len(in))
	for i, f := range in {
		out[i] = *f
	}
	return out
}

// Rank puts what stands for findings into the one order in which they are reported
// everywhere. Of each, cause, subject, role, weight and cost count.
//
// A weight is a share of the attempts at one service, be it ever so small. So
// that shares of different services compare, the weight of what cost less than a
// fifth of what the most expensive cause cost is reduced in proportion: a service that
// is down but that hardly anybody calls is reported, and not before one that all
// wait for. Where the cost is not known, the weight alone counts. The costs of what
// threads wait for are no estimates against each other, since the same looks tell them:
// of two waits on one way that which keeps the requests longer is reported first. Nor
// are the costs of what nobody explains, which are what was counted: most lost first.
func Rank[T any](list []T, catalogue []cause.Cause, of func(T) *cause.Finding) {
	known := declared(catalogue)
	waits := func(f *cause.Finding) bool { c := known[f.Cause]; return c != nil && c.Class&cause.ClassWait != 0 }
	mostCost, longest := 0.0, 0.0 // of all, of waits
	for _, x := range list {
		if f := of(x); f.Role == cause.RoleCause && f.Impact.Cost != nil {
			mostCost = max(mostCost, *f.Impact.Cost)
			if waits(f) {
				longest = max(longest, *f.Impact.Cost)
			}
		}
	}
	worth := func(f *cause.Finding) float64 {
		full := fullCost * mostCost
		if waits(f) {
			full = max(full, longest)
		}
		if f.Impact.Cost == nil || full == 0 {
			return f.Weight
		}
		return f.Weight * min(1, *f.Impact.Cost/full)
	}
	slices.SortStableFunc(list, func(x, y T) int {
		a, b := of(x), of(y)
		return cmp.Or(
			cmp.Compare(a.Role, b.Role), // "cause" < "consequence"
			cmp.Compare(worth(b), worth(a)),
			before(a, b, known),
		)
	})
	var at []int
	var unexplained []T
	for i, x := range list {
		if f := of(x); f.Role == cause.RoleCause && f.Cause == cause.Unexplained {
			at, unexplained = append(at, i), append(unexplained, x)
		}
	}
	slices.SortStableFunc(unexplained, func(x, y T) int { return cmp.Compare(costOf(of(y)), costOf(of(x))) })
	for i, x := range unexplained {
		list[at[i]] = x
	}
}

// layer is where on a request's way a finding's cause sits.
func layer(f *cause.Finding, known declarations) int {
	if c := known[f.Cause]; c != nil {
		return int(c.Layer)
	}
	return math.MaxInt
}

// before is negative when a is reported before b of findings whose costs compare: by
// weight, then the layer that a request meets first.
func before(a, b *cause.Finding, known declarations) int {
	if d := cmp.Compare(b.Weight, a.Weight); d != 0 {
		return d
	}
	return cmp.Or(
		cmp.Compare(layer(a, known), layer(b, known)),
		cmp.Compare(a.Cause, b.Cause),
		cmp.Compare(a.Subject.NetNS, b.Subject.NetNS),
		cmp.Compare(a.Subject.Port, b.Subject.Port),
		cmp.Compare(a.Subject.PID, b.Subject.PID),
	)
}
