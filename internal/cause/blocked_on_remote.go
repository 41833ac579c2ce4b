package cause

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// BlockedOnRemote: threads that should answer wait for an address beyond this
// host that does not answer: neither to connect() nor to what was sent. Where
// the calls have an end, and requests of their own, slow-dependency tells it.
const BlockedOnRemote ID = "blocked-on-remote"

var blockedOnRemote = Cause{
	ID:    BlockedOnRemote,
	Title: "A remote service does not answer",
	Layer: LayerCall,
	Class: ClassWait,
	Needs: []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{SlowDependency, NetworkLoss, SYNRetransmits, ConntrackFull, DNSTimeout, DNSSlow, DNSSearchExpansion,
		ConnectTimeout, IPv6Fallback, ClassDrop},
	Folds: true,
	Check: checkBlockedOnRemote,
}

func checkBlockedOnRemote(v *View) Result {
	return v.judgeRoots(BlockedOnRemote, "no thread that answers requests was held up by an address beyond this host", func(r *root, f *Finding) {
		h := r.blamed()
		service := f.Subject
		f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "destination", h.Process.PID, h.Process.Comm
		if a, err := netip.ParseAddrPort(h.Remote); err == nil {
			f.Subject.Addr, f.Subject.Port = a.Addr().String(), int(a.Port())
		}
		did := "does not answer what was sent"
		switch {
		case h.Syscall == "connect" || h.Wants == observe.WantsAccept:
			did = "does not answer the SYN"
		case h.Wants == observe.WantsRoom:
			did = "does not take what is sent"
		}
		f.Title = fmt.Sprintf("Requests of %s wait for %s, which %s", service.Comm, h.Remote, did)
		if h.Detail != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "connection", Value: h.Object, Unit: "(" + h.Detail + ")", Source: "sock_diag"})
		}
		f.Fix.Text = fmt.Sprintf("Find out why %s %s, or the way there swallows it (a firewall, a host that is gone). In %s: set a short time limit for connecting and for the answer, and do this outside of the request where nobody needs it at once.", h.Remote, did, service.Comm)
		f.Fix.Commands = []shell.Command{v.in(v.place(h.Process.NetNS), shell.Line("ss -tnpoi dst %s", h.Remote))}
		f.MayFollow = func(p *Finding) bool {
			if slices.Contains([]ID{DNSTimeout, DNSSlow, DNSSearchExpansion}, p.Cause) {
				return p.Subject.NetNS == f.Subject.NetNS && f.Subject.Port == namePort
			}
			if p.Cause == SlowDependency {
				return p.Subject.Addr == f.Subject.Addr && p.Subject.Port == f.Subject.Port
			}
			if p.is(ClassDrop) && v.Master(p.Subject.PID) == v.Master(f.Subject.PID) {
				return true // what it sent died there, in whichever namespace
			}
			return p.Subject.NetNS == f.Subject.NetNS && (p.Cause == ConntrackFull || p.Subject.Addr == f.Subject.Addr && p.Subject.Port == f.Subject.Port) &&
				slices.Contains([]ID{NetworkLoss, SYNRetransmits, ConntrackFull, ConnectTimeout, IPv6Fallback}, p.Cause)
		}
	})
}
