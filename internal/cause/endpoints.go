package cause

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ServiceWithoutEndpoints: no pod behind a service is ready. kube-proxy rejects what goes
// to its address (pkg/proxy/iptables), and its name still resolves.
const ServiceWithoutEndpoints ID = "service-without-endpoints"

var serviceWithoutEndpoints = podCause(ServiceWithoutEndpoints, "A service has no ready endpoint", LayerCall,
	[]Parent{ClassLimit, LivenessProbeKills, ReadinessProbeUnlists, ReplicasMissing, NodePressureEviction, TerminatedBeforeDrain}, func(v *View) []sign {
		var out []sign
		for i := range v.Kubernetes.Services {
			s := &v.Kubernetes.Services[i]
			if !s.EndpointsKnown || !s.Selects || readyOf(s) > 0 {
				continue
			}
			to := &aim{map[*observe.Pod]bool{}, map[netip.Addr]bool{}}
			to.add(s.IPs)
			evidence := endpointEvidence(s)
			for _, p := range v.podsBehind(s) {
				to.pods[p] = true
				if len(evidence) < mostPodsShown {
					evidence = append(evidence, Evidence{Fact: "pod " + p.Name, Value: podState(p), Source: "status.containerStatuses"})
				}
			}
			text := fmt.Sprintf("none of the %d endpoints of service %s/%s is ready", len(s.Endpoints), s.Namespace, s.Name)
			fix := Fix{Text: "See why its pods are not ready.", Commands: lookAtService(s)}
			if len(s.Endpoints) == 0 {
				text = fmt.Sprintf("no pod is behind service %s/%s", s.Namespace, s.Name)
				fix.Text = "Compare its selector with the labels of the pods that should answer, and see whether they run."
				fix.Commands = append([]shell.Command{shell.Line("kubectl -n %s get service %s -o wide", shell.Word(s.Namespace), shell.Operand(s.Name))}, fix.Commands...)
			}
			out = append(out, sign{subject: Subject{Kind: "destination"}, text: text, to: to, kinds: tollRefused, evidence: evidence, fix: fix})
		}
		return out
	})

// podState is why a pod is not ready, in Kubernetes' words.
func podState(p *observe.Pod) string {
	state := p.Phase
	if p.DeletedAt != 0 {
		state = "Terminating"
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.Ready && !c.Init {
			return fmt.Sprintf("%s: %s", state, strings.TrimSpace(cmp.Or(c.Reason, c.State)+", "+itoa(c.Restarts)+" restarts"))
		}
	}
	return state
}

// StaleEndpoint: a client connects to the address of a pod that is gone. It looked the
// name up long ago, or has the address from somewhere else than the service.
const StaleEndpoint ID = "stale-endpoint"

var staleEndpoint = podCause(StaleEndpoint, "Clients connect to a pod that is gone", LayerCall, nil, func(v *View) []sign {
	return v.ofGone(func(p *observe.Pod) bool { return v.gone(p) && v.endedAt(p) < 0 }, func(p *observe.Pod, s *sign) {
		s.text = fmt.Sprintf("a pod of %s had the address until %s before the window", s.at.workload().Text(), seconds(-v.endedAt(p)))
		s.kinds = tollRefused
		s.evidence = []Evidence{{Fact: "pod that had the address", Value: p.Namespace + "/" + p.Name + ", " + podState(p), Source: "kubelet, API server"}}
		s.fix.Text = "Let the client look the name up for each new connection, or connect through the service: it has an address from before."
		s.at, s.subject = inPod{}, Subject{Kind: "destination"}
		s.fix.Commands = v.restartClients(s.to)
	})
})

// restartClients starts the workloads of this node again whose connections to a fail.
func (v *View) restartClients(a *aim) []shell.Command {
	var out []shell.Command
	for _, o := range v.outcomes().all {
		if at := v.podOfProcess(o.pid); o.vain() >= fewAffected && a.addrs[address(o.addr).Unmap()] && at.rollsOut() {
			out = append(out, at.edit("", shell.Line("rollout restart"), shell.Command{}))
		}
	}
	return unique(out)
}

// TerminatedBeforeDrain: a pod is asked to end (SIGTERM) at the same time as it is taken out
// of its services. What proxies and clients send until they know is refused or reset.
const TerminatedBeforeDrain ID = "terminated-before-drain"

var terminatedBeforeDrain = podCause(TerminatedBeforeDrain, "A pod ended before its requests were drained", LayerCall, []Parent{AutoscalerFlapping, NodePressureEviction}, func(v *View) []sign {
	return append(v.endingElsewhere(), v.ofGone(func(p *observe.Pod) bool { return v.endedAt(p) >= 0 && p.DeletedAt <= v.Window.Seconds }, func(p *observe.Pod, s *sign) {
		s.since, s.kinds = p.DeletedAt, tollCut|tollRefused
		s.text = fmt.Sprintf("asked to end %s into the window", seconds(p.DeletedAt))
		if p.DeletedAt < 0 {
			s.text = fmt.Sprintf("asked to end %s before the window", seconds(-p.DeletedAt))
		}
		grace := Evidence{Fact: "terminationGracePeriodSeconds of " + p.Name, Value: p.GraceSeconds, Unit: "s", Source: s.at.spec() + ".terminationGracePeriodSeconds"}
		defer func() { s.evidence = append(s.evidence, grace) }()
		first := v.firstToEnd(p)
		if s.at.container = first; first == nil { // its containers are not known
			first = &observe.PodContainer{}
		}
		hooked, took := first.PreStop, 0.0
		for i := range p.Containers {
			if c := &p.Containers[i]; hasEnded(c) {
				e := Evidence{Fact: "container " + c.Name + " ended after it was asked to", Value: round(c.Last.At - p.DeletedAt), Unit: "s", Source: "status.containerStatuses"}
				if c != first {
					s.evidence = append(s.evidence, e)
					continue
				}
				s.evidence, took = slices.Insert(s.evidence, 0, e), c.Last.At-p.DeletedAt
			}
		}
		patch := func(hook map[string]any) shell.Command {
			return s.at.patchContainer("lifecycle.preStop", map[string]any{"lifecycle": map[string]any{"preStop": hook}})
		}
		switch {
		case hooked && took > 0 && took < float64(p.GraceSeconds)-1: // nobody killed it: it was done too early
			wait := max(int(2*took), 2*drainSeconds)
			s.fix.Text = fmt.Sprintf("Its preStop hook ends before proxies and clients know that it ends: let it take longer, and less than the grace period. In the manifest: %s.", s.at.field("lifecycle.preStop"))
			s.fix.Commands = []shell.Command{patch(map[string]any{"exec": nil, "httpGet": nil, "sleep": map[string]any{"seconds": wait}}).
				Note("in place of the hook that it has, Kubernetes 1.30 or later")}
			return
		case hooked:
			want := max(2*p.GraceSeconds, 60)
			s.fix.Text = fmt.Sprintf("Let it finish the requests in hand upon SIGTERM, and give it the time. In the manifest: %s.terminationGracePeriodSeconds.", s.at.spec())
			s.fix.Commands = []shell.Command{s.at.patch(s.at.spec()+".terminationGracePeriodSeconds", map[string]any{"terminationGracePeriodSeconds": want})}
			return
		case first.Last.ExitCode == 128+sigkill && took >= float64(p.GraceSeconds)-1: // a hook would only shorten the time
			s.evidence = append(s.evidence, Evidence{Fact: "its last exit", Value: lastExit(&first.Last, v.Window.Seconds), Source: "status.containerStatuses"})
			s.fix.Text = "It goes on after SIGTERM until it is killed with requests in hand: let it close its listening socket and idle connections upon SIGTERM, finish, and exit. A shell that is the first process of a container passes no signal on: start the program with exec."
			s.fix.Commands = []shell.Command{shell.Line("# in the entrypoint of the image: exec the program")}
			return
		}
		s.evidence = slices.Insert(s.evidence, 0, Evidence{Fact: "preStop hook", Value: "none", Source: s.at.field("lifecycle.preStop")})
		s.fix.Text = fmt.Sprintf("Let it answer until proxies and clients know that it ends: a preStop hook that sleeps. In the manifest: %s.", s.at.field("lifecycle.preStop"))
		s.fix.Commands = []shell.Command{patch(map[string]any{"sleep": map[string]any{"seconds": drainSeconds}}).Note("Kubernetes 1.30 or later")}
	})...)
})

// endingElsewhere makes a sign of each pod of another node that is about to end: of those the
// services alone tell, and only the clients of this node.
func (v *View) endingElsewhere() []sign {
	var out []sign
	for i := range v.Kubernetes.Services {
		sv := &v.Kubernetes.Services[i]
		for j := range sv.Endpoints {
			e := &sv.Endpoints[j]
			if !e.Terminating || e.Node == v.Kubernetes.Node.Name || v.podBehind(sv, e) != nil {
				continue
			}
			p := &observe.Pod{Namespace: sv.Namespace, Name: e.Pod}
			to := &aim{map[*observe.Pod]bool{}, map[netip.Addr]bool{}}
			to.add(append([]string{e.Address}, sv.IPs...))
			for _, l := range v.ledgers {
				if w := l.Workload; w != nil && l.called() && w.Namespace == sv.Namespace && w.Pod == e.Pod {
					p.Kind, p.Owner = w.Kind, w.Name
				}
			}
			s := sign{at: inPod{pod: p, node: &observe.KubeNode{Name: e.Node}}, to: to, kinds: tollCut | tollRefused,
				text:     fmt.Sprintf("pod %s/%s on node %s is about to end", sv.Namespace, e.Pod, e.Node),
				evidence: append([]Evidence{{Fact: "endpoint of service " + sv.Namespace + "/" + sv.Name, Value: e.Address + ", terminating", Source: "EndpointSlice"}}, endpointEvidence(sv)...)}
			field := s.at.field("lifecycle.preStop")
			s.fix.Text = fmt.Sprintf("Let it answer until proxies and clients know that it ends: a preStop hook that sleeps. In the manifest: %s.", field)
			s.fix.Commands = []shell.Command{s.at.patchContainer("lifecycle.preStop", nil)}
			out = append(out, s)
		}
	}
	return out
}

// hasEnded says that a container, which is no init container, has ended, and when.
func hasEnded(c *observe.PodContainer) bool {
	return !c.Init && c.State == "terminated" && c.Last.At != 0
}

// firstToEnd is the container of a pod that ended first of those that answer requests, as far
// as that is known: the others are of no use without it, and a sidecar has no hook of its own.
func (v *View) firstToEnd(p *observe.Pod) *observe.PodContainer {
	answers := map[*observe.PodContainer]bool{}
	for _, l := range v.podLedgers().of[p] {
		for _, pid := range append([]int{l.pid}, l.PIDs...) {
			if at := v.podOfProcess(pid); at.pod == p && at.container != nil {
				answers[at.container] = true
			}
		}
	}
	var first *observe.PodContainer
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Init || len(answers) > 0 && !answers[c] {
			continue
		}
		if first == nil || hasEnded(c) && (!hasEnded(first) || c.Last.At < first.Last.At) {
			first = c
		}
	}
	return first
}

// ofGone makes a sign of the pods of each workload that somebody asked to end and of which is
// says so; fill completes it for the first of them.
func (v *View) ofGone(is func(*observe.Pod) bool, fill func(*observe.Pod, *sign)) []sign {
	var pods []*observe.Pod
	for i := range v.Kubernetes.Pods {
		if p := &v.Kubernetes.Pods[i]; p.DeletedAt != 0 && is(p) {
			pods = append(pods, p)
		}
	}
	slices.SortStableFunc(pods, func(a, b *observe.Pod) int { return cmp.Compare(a.DeletedAt, b.DeletedAt) })
	var out []sign
	done := map[*observe.Pod]bool{}
	for _, p := range pods {
		if done[p] {
			continue
		}
		s := sign{at: inPod{pod: p, node: &v.Kubernetes.Node}, to: &aim{map[*observe.Pod]bool{}, map[netip.Addr]bool{}}}
		all := v.replicas(p)
		for _, o := range pods {
			if !slices.Contains(all, o) {
				continue
			}
			done[o], s.to.pods[o] = true, true
			for i := range v.Kubernetes.Services { // what is sent to them goes to it until they know
				if sv := &v.Kubernetes.Services[i]; slices.Contains(v.podsBehind(sv), o) {
					s.to.add(sv.IPs)
				}
			}
			if !o.HostNetwork && !v.taken(o) {
				s.to.add(o.IPs)
			}
		}
		fill(p, &s)
		if n := len(s.to.pods); n > 1 {
			s.evidence = append(s.evidence, Evidence{Fact: "pods of it that were asked to end", Value: n, Unit: "pods", Source: "metadata.deletionTimestamp"})
		}
		out = append(out, s)
	}
	return out
}

// taken says that another pod has the address of p by now.
func (v *View) taken(p *observe.Pod) bool {
	return slices.ContainsFunc(p.IPs, func(ip string) bool {
		o := v.pods().byAddr[address(ip).Unmap()]
		return o != nil && o != p && !v.gone(o)
	})
}

// endedAt is when a pod that was asked to end had ended, at the latest: when its last
// container did, else when its time was over.
func (v *View) endedAt(p *observe.Pod) float64 {
	at := p.DeletedAt + float64(p.GraceSeconds)
	last := 0.0
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.State != "terminated" || c.Last.At == 0 {
			return at
		}
		if last == 0 || c.Last.At > last {
			last = c.Last.At
		}
	}
	if last != 0 {
		return last
	}
	return at
}
