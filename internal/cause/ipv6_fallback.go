package cause

import (
	"cmp"
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// IPv6Fallback: a name has IPv6 and IPv4 addresses, and IPv6 leads nowhere. A
// caller tries IPv6 first (RFC 6724) and goes on to IPv4 when its time limit is
// over, or after 250–300 ms where it tries both at once (RFC 8305).
const IPv6Fallback ID = "ipv6-fallback"

var ipv6Fallback = Cause{
	ID:    IPv6Fallback,
	Title: "Connections try a dead IPv6 path first",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindConnects, observe.KindRequests},
	Check: checkIPv6Fallback,
}

// fallbackOf is the IPv4 address that the same service connects to at the same
// port after IPv6 attempts went without an answer; nil when there is none.
func (v *View) fallbackOf(o *outcomes) *outcomes {
	if !o.v6() || o.established > o.unanswered {
		return nil
	}
	for _, other := range v.outcomes().v4[o.caller()] {
		if other.established >= o.unanswered/2 && other.established > 0 {
			return other
		}
	}
	return nil
}

func checkIPv6Fallback(v *View) Result {
	var r Result
	for _, o := range v.outcomes().all {
		twin := v.fallbackOf(o)
		if o.unanswered == 0 || twin == nil {
			continue
		}
		text := fmt.Sprintf("%s of %s connections of %s to %s got no answer, and %s to %s did", count(o.unanswered), count(o.all()), o.comm, o.name(),
			count(twin.established), twin.name())
		h, ok := v.harmed(o.pid, o.unanswered)
		if !ok || o.unanswered < fewAffected {
			if r.RuledOut == "" {
				r.RuledOut = text + ": " + h.text
			}
			continue
		}
		f := supported(Subject{Kind: "destination", NetNS: o.netns, PID: o.pid, Comm: v.Comm(o.pid), Addr: o.addr, Port: o.port})
		f.Weight = h.share
		f.Impact = h.impact(text + "; ")
		f.Evidence = []Evidence{
			{Fact: "connections over IPv6 that got no answer", Value: o.unanswered, Limit: o.all(), Unit: "connections", Source: "TCP sockets"},
			{Fact: "connections over IPv4 at the same port", Value: twin.established, Unit: "connections", Source: "TCP sockets"},
		}
		ns := v.place(o.netns)
		f.Fix.Text = fmt.Sprintf("Fix the IPv6 way to %s, or take its AAAA record out of the name. Until then let this host prefer IPv4 (the last line of /etc/gai.conf that names ::ffff:0:0/96).", o.addr)
		f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("ip -6 route get %s", o.addr)), shell.Line("echo 'precedence ::ffff:0:0/96 100' >> /etc/gai.conf   # where %s sees it, for new processes", f.Subject.Comm)}
		r.Findings = append(r.Findings, f)
	}
	r.RuledOut = cmp.Or(r.RuledOut, "no service tried IPv6 in vain and then IPv4")
	return r
}
