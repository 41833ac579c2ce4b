package cause

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// aim is where requests go that pods should answer: to processes in them, and to
// addresses of theirs and of the services in front of them.
type aim struct {
	pods  map[*observe.Pod]bool
	addrs map[netip.Addr]bool
}

// aimAt is the requests to pods, and to the services in front of them.
func (v *View) aimAt(pods ...*observe.Pod) *aim {
	a := &aim{map[*observe.Pod]bool{}, map[netip.Addr]bool{}}
	for _, p := range pods {
		a.pods[p] = true
		if !p.HostNetwork {
			a.add(p.IPs)
		}
	}
	for i := range v.Kubernetes.Services {
		s := &v.Kubernetes.Services[i]
		if slices.ContainsFunc(v.podsBehind(s), func(p *observe.Pod) bool { return a.pods[p] }) {
			a.add(s.IPs)
		}
	}
	return a
}

func (a *aim) add(ips []string) {
	for _, ip := range ips {
		if addr := address(ip).Unmap(); addr.IsValid() {
			a.addrs[addr] = true
		}
	}
}

// podBehind is the pod of this node behind an endpoint of a service, or nil.
func (v *View) podBehind(s *observe.KubeService, e *observe.KubeEndpoint) *observe.Pod {
	return v.pods().byName[[2]string{s.Namespace, e.Pod}]
}

// podsBehind are the pods of this node that are behind a service, or were in the window.
func (v *View) podsBehind(s *observe.KubeService) (out []*observe.Pod) {
	for i := range s.Endpoints {
		if p := v.podBehind(s, &s.Endpoints[i]); p != nil {
			out = append(out, p)
		}
	}
	for _, name := range s.Left {
		if p := v.pods().byName[[2]string{s.Namespace, name}]; p != nil {
			out = append(out, p)
		}
	}
	return out
}

func (a *aim) has(v *View, l *ledger) bool {
	if a.addrs[l.address.Unmap()] {
		return true
	}
	by := v.podLedgers().by
	for p := range a.pods {
		if by[podServes{l, p}] {
			return true
		}
	}
	return false
}

// replicas are the pods of this node with the same owner, itself among them.
func (v *View) replicas(p *observe.Pod) []*observe.Pod {
	out := []*observe.Pod{p}
	for i := range v.Kubernetes.Pods {
		o := &v.Kubernetes.Pods[i]
		if o != p && p.Owner != "" && o.Owner == p.Owner && o.Kind == p.Kind && o.Namespace == p.Namespace {
			out = append(out, o)
		}
	}
	return out
}

// tollKind says which harm may come of a sign.
type tollKind uint8

const (
	tollCut      tollKind = 1 << iota // requests that the server's end cut off
	tollRefused                       // connections that were not established
	tollOverload                      // requests that were slow, and waited for somebody to work for them
)

// toll is what became of requests, or of connections, where it was worst.
type toll struct {
	share, lost float64 // lost in s
	of, text    string
	o           *outcomes // of connections
	ends        []*ledger // all that were asked
}

// tollOf tells what requests to a suffered from a moment of the window on; ok says that
// anything did.
func (v *View) tollOf(a *aim, since float64, kinds tollKind) (t toll, ok bool) {
	t.text = "no request to it suffers"
	for _, l := range v.ledgers {
		if !a.has(v, l) || l.Requests < fewRequests {
			continue
		}
		t.ends = append(t.ends, l)
		n := v.cutByServer(l, since)
		if share := ratio(n, l.Requests); kinds&tollCut != 0 && l.enough(n) && share >= max(noiseShare, t.share) {
			t.share, t.lost, t.of = share, failedCost*float64(n), "requests"
			t.text = fmt.Sprintf("%s of %s failed", count(n), l.all())
		}
		if kinds&tollOverload == 0 || !l.overloaded() {
			continue
		}
		for _, h := range v.harmsOf(l) {
			if share := ratio(h.Requests, l.Requests+l.waiting()); (h.Kind == HarmSlow || h.Kind == HarmUnfinished) && share > t.share {
				t.share, t.lost, t.of = share, h.Seconds, "requests"
				t.text = fmt.Sprintf("%s of %s were slow, by %s in all", count(h.Requests), l.all(), seconds(h.Seconds))
			}
		}
	}
	if kinds&tollRefused == 0 {
		return t, t.share > 0
	}
	for _, o := range v.outcomes().all {
		n := o.vain()
		share := ratio(n, o.all())
		if !a.addrs[address(o.addr).Unmap()] || n < fewAffected || share < noiseShare {
			continue
		}
		h, harmed := v.harmedBy(o, n)
		text := fmt.Sprintf("%s of %s connections of %s to %s failed", count(n), count(o.all()), o.comm, o.name())
		switch {
		case harmed && max(share, h.share) > t.share:
			t = toll{share: max(share, h.share), lost: failedCost * float64(n), of: "new connections", text: text, o: o, ends: t.ends}
		case !harmed && t.share == 0:
			t.text = text + ": " + h.text
		}
	}
	return t, t.share > 0
}

// cutByServer is how many requests of an endpoint got no whole answer from a moment of the
// window on, and were not given up by the client: by their flags, and by the last that
// failed, which may all be those of a load that ended.
func (v *View) cutByServer(l *ledger, since float64) uint64 {
	from := v.Window.Start.UnixNano() + int64(since*1e9)
	var seen, cut, after float64
	for i := range l.Failed {
		s := &l.Failed[i]
		if !hasFlag(s, observe.FlagUnanswered) && !hasFlag(s, observe.FlagTruncated) {
			continue
		}
		seen++
		if hasFlag(s, observe.FlagHalfClosed) {
			continue
		}
		cut++
		if s.StartNS+s.TotalNS >= from {
			after++
		}
	}
	lost := float64(l.lostRequests())
	n := max(lost-float64(l.affected(observe.FlagHalfClosed)), ratio(cut, seen)*lost)
	switch {
	case since <= 0:
	case cut > 0:
		n *= ratio(after, cut)
	default: // no example was kept: it was as likely at any time
		n *= ratio(v.Window.Seconds-since, v.Window.Seconds)
	}
	return uint64(max(n, 0))
}

// overloaded says that the requests of an endpoint wait, noticeably, for somebody who works
// for them, or for a CPU: it has more to do than it can.
func (l *ledger) overloaded() bool {
	c := l.cost(1, observe.AcceptWait, observe.RecvWait)
	if l.followed() {
		in := l.serverCost(observe.ServerRunq, observe.ServerThrottled)
		c = cost{share: c.share + in.share, slowShare: c.slowShare + in.slowShare, ns: c.ns + in.ns, slowNS: c.slowNS + in.slowNS, usual: c.usual + in.usual}
	}
	return l.noticed(c, threadFloor)
}

// sign is something that Kubernetes did, or did not, and whose requests may suffer by it.
type sign struct {
	at       inPod   // whom it is about; may be nobody
	subject  Subject // of nobody: what it is about instead
	text     string  // what happened to it
	unless   string  // why it is no fault, whatever requests suffer
	to       *aim
	since    float64 // s into the window from which on requests suffer
	kinds    tollKind
	evidence []Evidence
	fix      Fix
}

// podCause declares a cause of which Kubernetes tells the signs. A sign is a finding
// only where requests failed, or were slow.
func podCause(id ID, title string, layer Layer, parents []Parent, look func(v *View) []sign) Cause {
	return Cause{ID: id, Title: title, Layer: layer, Class: ClassKill, Needs: []observe.Kind{observe.KindKubernetes, observe.KindRequests},
		ConsequenceOf: parents, Folds: true,
		Check: func(v *View) Result {
			if v.Kubernetes == nil {
				return ruledOut("no pod runs here")
			}
			r := ruledOut("no sign of it in what Kubernetes says of the pods of this node")
			for _, s := range look(v) {
				v.Step()
				t, ok := toll{}, false
				because := s.unless
				if because == "" {
					t, ok = v.tollOf(s.to, s.since, s.kinds)
					because = t.text
				}
				if !ok {
					r.RuledOut = s.text + "; " + because
					if who := s.at.text(); who != "" {
						r.RuledOut = who + ": " + r.RuledOut
					}
					continue
				}
				f := v.signFinding(&s, &t)
				// Of the pods of one workload the one that costs most stands for all.
				same := slices.IndexFunc(r.Findings, func(o Finding) bool {
					a, b := o.Subject.Workload, f.Subject.Workload
					return s.at.pod != nil && a.Namespace == b.Namespace && a.Kind == b.Kind && a.Name == b.Name && a.Name != ""
				})
				switch {
				case same < 0:
					r.Findings = append(r.Findings, f)
				case f.Weight > r.Findings[same].Weight:
					r.Findings[same] = f
				}
			}
			return r
		}}
}

func (v *View) signFinding(s *sign, t *toll) Finding {
	subject := s.subject
	if s.at.pod != nil {
		subject = Subject{Kind: "pod", Workload: s.at.workload()}
	}
	if served := v.podLedgers().of[s.at.pod]; len(served) > 0 {
		l := served[0]
		subject.PID, subject.Comm, subject.NetNS, subject.Port = l.pid, v.commOf(l), l.NetNS, l.Port
	}
	if t.o != nil && subject.Kind == "destination" {
		subject.NetNS, subject.PID, subject.Comm, subject.Addr, subject.Port = t.o.netns, t.o.pid, t.o.comm, t.o.addr, t.o.port
	}
	f := supported(subject)
	f.Weight, f.lost = t.share, &t.lost
	f.Impact = Impact{Share: round(t.share), Of: t.of, Text: s.text + "; " + t.text}
	f.Evidence, f.Fix = s.evidence, s.fix
	if f.Fix.Commands == nil {
		f.Fix.Commands = []shell.Command{}
	}
	f.hurts = map[*ledger]bool{}
	for _, l := range t.ends {
		f.hurts[l] = true
	}
	f.MayFollow = v.inPods(s.to)
	return f
}

// inPods says of a finding whether it is about one of these pods, about what is behind
// their requests, or about the machine as such.
func (v *View) inPods(a *aim) func(*Finding) bool {
	return func(p *Finding) bool {
		at := v.podOfSubject(&p.Subject)
		if at.pod != nil && slices.ContainsFunc(v.replicas(at.pod), func(o *observe.Pod) bool { return a.pods[o] }) {
			return true
		}
		if w := &p.Subject.Workload; at.pod == nil && w.Name != "" { // about the workload as such, as an autoscaler's
			for o := range a.pods {
				if o.Namespace == w.Namespace && o.Kind == w.Kind && o.Owner == w.Name {
					return true
				}
			}
		}
		// A limit, and a process that was killed, are those of one container.
		return p.Subject.Kind != "cgroup" && !p.is(ClassLimit|ClassKill) && (p.is(ClassMachine) || slices.ContainsFunc(v.stake(p), func(l *ledger) bool { return a.has(v, l) }))
	}
}

// events goes over the events about a pod with a reason, and a word of their message.
func (v *View) events(p *observe.Pod, reason, word string) (last *observe.KubeEvent, n int) {
	for i := range v.Kubernetes.Events {
		e := &v.Kubernetes.Events[i]
		if e.Kind == "Pod" && e.Namespace == p.Namespace && e.Name == p.Name && e.Reason == reason && containsFold(e.Message, word) {
			last = e
			n += max(e.Count, 1)
		}
	}
	return last, n
}

// lookAtService shows what stands behind a service.
func lookAtService(s *observe.KubeService) []shell.Command {
	return []shell.Command{
		shell.Line("kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s -o yaml", shell.Word(s.Namespace), s.Name),
		shell.Line("kubectl -n %s get pods -o wide", shell.Word(s.Namespace)),
	}
}

// endpointEvidence is how many of the pods behind a service are ready.
func endpointEvidence(s *observe.KubeService) []Evidence {
	if s == nil || !s.EndpointsKnown {
		return nil
	}
	return []Evidence{{Fact: "ready endpoints of service " + s.Namespace + "/" + s.Name, Value: readyOf(s), Limit: len(s.Endpoints), Unit: "endpoints", Source: "EndpointSlice"}}
}

func readyOf(s *observe.KubeService) (n int) {
	for i := range s.Endpoints {
		if s.Endpoints[i].Ready {
			n++
		}
	}
	return n
}
