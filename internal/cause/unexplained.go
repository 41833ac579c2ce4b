package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Unexplained: requests were harmed, and no other finding accounts for it. Its finding
// is made from the account of harm (View.Account), once all others are known.
const Unexplained ID = "unexplained"

var unexplained = Cause{
	ID:    Unexplained,
	Title: "Requests suffer from an unknown cause",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindRequests},
	Check: func(*View) Result { return ruledOut("no harm is left that the findings do not account for") },
}

// Unexplained makes a finding of what no other accounts for at a victim; false where
// that is the smaller part.
func (v *View) Unexplained(x *Victim) (Finding, bool) {
	left := x.Lost - x.Explained
	if left <= unexplainedShare*x.Lost {
		return Finding{}, false
	}
	l := x.l
	if l == nil {
		return v.unexplainedConnections(x, left), true
	}
	f := supported(Subject{Kind: "listener", NetNS: x.NetNS, PID: x.PID, Comm: x.Comm, Port: x.Port, Addr: x.Addr})
	f.Cause, f.layer = Unexplained, LayerApplication
	f.Title = unexplained.Title
	f.Weight = ratio(left, l.TimeNS()/1e9+failedCost*float64(l.failedRequests()))
	f.lost = &left
	f.Impact = Impact{Share: round(ratio(left, x.Lost)), Of: "the harm", Text: l.harmText(x.Harms)}
	for _, h := range x.Harms {
		f.Evidence = append(f.Evidence, Evidence{Fact: "requests " + string(h.Kind), Value: h.Requests, Limit: l.Requests + l.waiting(), Unit: "requests, which lost " + seconds(h.Seconds), Source: recorded})
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "where their time goes", Value: l.whereTimeGoes(), Source: recorded})
	v.whatIsKnown(&f, l)
	f.Fix.Text = fmt.Sprintf("No cause that slowray knows accounts for this. Look at where %s stands in these requests, and at its own log.", x.Comm)
	if x.PID > 0 {
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("slowray wait %s", x.PID), shell.Line("slowray flame --pid %s --off-cpu -o flame.html", x.PID))
	}
	f.Fix.Commands = append(f.Fix.Commands, shell.Line("slowray requests --port %s --labels", x.Port))
	return f, true
}

// unexplainedConnections is Unexplained for connections that were not established.
func (v *View) unexplainedConnections(x *Victim, left float64) Finding {
	o := x.o
	f := supported(Subject{Kind: "destination", NetNS: o.netns, PID: o.pid, Comm: o.comm, Port: o.port, Addr: o.addr})
	f.Cause, f.layer, f.Title = Unexplained, LayerCall, unexplained.Title
	f.Weight = ratio(o.vain(), o.all())
	f.lost = &left
	f.Impact = Impact{Share: round(ratio(left, x.Lost)), Of: "the harm",
		Text: fmt.Sprintf("%s of %s connections of %s to %s were not established", count(o.vain()), count(o.all()), o.comm, o.name())}
	f.Evidence = []Evidence{
		{Fact: "connections refused", Value: o.refused, Limit: o.all(), Unit: "connections", Source: "TCP sockets"},
		{Fact: "connections never answered", Value: o.unanswered, Limit: o.all(), Unit: "connections", Source: "TCP sockets"},
	}
	f.Fix.Text = fmt.Sprintf("No cause that slowray knows accounts for this. Look at what listens at %s, and at the way there.", o.name())
	f.Evidence = append(f.Evidence, v.droppedIn(o.netns)...)
	ns := v.place(o.netns)
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip route get %s", o.addr)), v.in(ns, shell.Line("ss -tn state syn-sent dport = :%s", o.port)), shell.Line("slowray drops --for 10s")}
	return f
}

// knownAtMost is how many waits, and how many places where packets died, are reported for harm
// without a cause.
const knownAtMost = 2

// whatIsKnown adds to a finding what was seen of the requests that nobody explains: the
// waits of the threads that hold them, and who they end at, the slowest call, and where
// packets were dropped.
func (v *View) whatIsKnown(f *Finding, l *ledger) {
	if v.Waits != nil {
		n := 0
		for i := range v.Waits.Shares {
			s := &v.Waits.Shares[i]
			if s.PID != l.pid || s.SlowNS == 0 || len(s.Chain.Hops) == 0 || n == knownAtMost {
				continue
			}
			if n++; n == 1 {
				f.Chain, f.ChainEnd = s.Chain.Hops, chainEnd(&s.Chain)
			}
			last := &s.Chain.Hops[len(s.Chain.Hops)-1]
			e := Evidence{Fact: "their threads waited so: " + last.Sought(), Value: round(float64(s.SlowNS) / 1e9), Unit: "s of slow requests", Source: taskFiles}
			if last.Syscall != "" {
				e.Fact += ", in " + last.Syscall + "()"
			}
			if last.Wchan != "" {
				e.Fact += ", in the kernel in " + last.Wchan + "()"
			}
			f.Evidence = append(f.Evidence, e)
		}
	}
	calls := slices.DeleteFunc(slices.Clone(v.calledOf[l.pid]), func(o *ledger) bool { return o.reach < fewReach })
	if len(calls) > 0 {
		o := slices.MaxFunc(calls, func(a, b *ledger) int { return cmp.Compare(a.reach, b.reach) })
		f.Evidence = append(f.Evidence, Evidence{Fact: "what it calls most of the time: " + destinationName(o) + ", p50 and p99",
			Value: nanoseconds(float64(o.Total.Quantile(0.5))) + ", " + nanoseconds(float64(o.Total.Quantile(0.99))), Source: recorded})
	}
	f.Evidence = append(f.Evidence, v.droppedIn(l.NetNS)...)
}

// droppedIn tells where most packets of a network namespace were dropped.
func (v *View) droppedIn(netns uint64) []Evidence {
	sites := slices.DeleteFunc(slices.Clone(v.sites), func(s *DropSite) bool { return s.NetNS != netns || s.Packets < fewPackets })
	slices.SortStableFunc(sites, func(a, b *DropSite) int { return cmp.Compare(b.Packets, a.Packets) })
	var out []Evidence
	for _, s := range sites[:min(len(sites), knownAtMost)] {
		out = append(out, Evidence{Fact: "packets dropped " + v.PlaceOf(s), Value: s.Packets, Unit: "packets", Source: s.Source})
	}
	return out
}
