package cause

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// LivenessProbeKills: the kubelet ends a container whose liveness probe fails
// failureThreshold times in a row (pkg/kubelet/prober). A container that is merely slow
// answers later than timeoutSeconds, is ended with all requests in hand, and begins anew
// with a cold cache.
const LivenessProbeKills ID = "liveness-probe-kills"

var livenessProbeKills = podCause(LivenessProbeKills, "The liveness probe kills a slow pod", LayerMachine, slowPod, func(v *View) []sign {
	return v.probes("liveness", func(at inPod, p *observe.Probe, s *slowness) (sign, bool) {
		killed, when := v.killedByProbe(at)
		if killed.Fact == "" {
			return sign{}, false
		}
		text := fmt.Sprintf("ended by the kubelet %s into the window, for a probe that waits %s", seconds(max(when, 0)), seconds(float64(p.TimeoutSeconds)))
		advice := "Give the probe more time than requests take, and let it ask only whether the process is stuck."
		if p.Kind == "tcp" {
			advice = "Find what fills the accept queue, and give the probe the time in which a dropped SYN is retransmitted."
		}
		fix := Fix{Text: fmt.Sprintf("%s In the manifest: %s.", advice, at.field("livenessProbe.timeoutSeconds")),
			Commands: []shell.Command{at.probeCommand("livenessProbe", p, s)}}
		return sign{at: at, text: text, to: v.aimAt(at.pod), kinds: tollCut | tollRefused, evidence: append([]Evidence{killed}, v.exitEvidence(at)...), fix: fix}, true
	})
})

// ReadinessProbeUnlists: a pod whose readiness probe fails is taken out of its services,
// and the others get its load.
const ReadinessProbeUnlists ID = "readiness-probe-unlists"

var readinessProbeUnlists = podCause(ReadinessProbeUnlists, "The readiness probe unlists a slow pod", LayerMachine, slowPod, func(v *View) []sign {
	return v.probes("readiness", func(at inPod, p *observe.Probe, s *slowness) (sign, bool) {
		e, n := v.events(at.pod, "Unhealthy", "readiness")
		began := at.container.Started
		unready := !at.pod.Ready && at.container.State == "running" && at.pod.ReadySince > began && at.pod.ReadySince >= recentlyUnready
		if (e == nil || e.At < 0) && !unready {
			return sign{}, false
		}
		var out []Evidence
		if n > 0 {
			out = append(out, Evidence{Fact: "readiness probes that failed: " + e.Message, Value: n, Unit: "probes", Source: "events"})
		}
		out = append(out, Evidence{Fact: "ready at the end of the window", Value: at.pod.Ready, Source: "status.conditions"})
		others := v.aimAt(slices.DeleteFunc(v.replicas(at.pod), func(o *observe.Pod) bool { return o == at.pod })...)
		for i := range v.Kubernetes.Services {
			if sv := &v.Kubernetes.Services[i]; slices.ContainsFunc(sv.Endpoints, func(e observe.KubeEndpoint) bool { return v.podBehind(sv, &e) == at.pod }) {
				others.add(sv.IPs)
				out = append(out, endpointEvidence(sv)...)
			}
		}
		fix := Fix{Text: fmt.Sprintf("Find what makes it slow, run more replicas, or give the probe more time than requests take. In the manifest: %s.", at.field("readinessProbe.timeoutSeconds")),
			Commands: []shell.Command{at.probeCommand("readinessProbe", p, s)}}
		text := fmt.Sprintf("not ready for a probe that waits %s", seconds(float64(p.TimeoutSeconds)))
		return sign{at: at, text: text, to: others, kinds: tollRefused | tollOverload, evidence: out, fix: fix}, true
	})
})

// slowPod is what makes a pod answer its probes late.
var slowPod = []Parent{ClassLate, ClassScan, ContainerOOMKilled, SlowDependency, BlockedOnRemote, DNSTimeout, DNSSlow, AcceptQueueOverflow, SlowStartOnQuota}

// slowness is what the requests of a container say of its being slow.
type slowness struct {
	l              *ledger
	late, requests uint64 // that took longer than the probe waits, of all
}

// probes calls look for each container of this node with a probe of a kind, and adds what
// its requests say of the time that the probe allows.
func (v *View) probes(kind string, look func(inPod, *observe.Probe, *slowness) (sign, bool)) []sign {
	var out []sign
	for i := range v.Kubernetes.Pods {
		pod := &v.Kubernetes.Pods[i]
		for j := range pod.Containers {
			at := inPod{pod, &pod.Containers[j], &v.Kubernetes.Node}
			probe := at.container.Liveness
			if kind == "readiness" {
				probe = at.container.Readiness
			}
			if probe == nil || pod.DeletedAt != 0 {
				continue
			}
			slow := v.slownessOf(at, probe)
			s, found := look(at, probe, slow)
			if !found {
				continue
			}
			limit := seconds(float64(probe.TimeoutSeconds))
			switch {
			case probe.Kind == "tcp": // the kernel answers for a process that is merely slow
				s.unless = v.roomFor(at.pod, probe.Port, &s)
			case slow.l == nil || slow.requests < fewRequests:
				s.unless = "it answered no request"
			case !slow.l.enough(slow.late) || ratio(slow.late, slow.requests) < noiseShare:
				s.unless = fmt.Sprintf("%s of %s took longer than %s", count(slow.late), slow.l.all(), limit)
			}
			allowed := Evidence{Fact: "time that the " + kind + " probe allows", Value: probe.TimeoutSeconds, Unit: "s", Source: at.field(kind + "Probe.timeoutSeconds")}
			if slow.l != nil && probe.Kind != "tcp" {
				// What the probe met, and why: the two that convince.
				s.evidence = slices.Insert(s.evidence, 1, Evidence{Fact: fmt.Sprintf("requests on %s that took longer than %s", slow.l.name(), limit), Value: slow.late, Limit: slow.requests, Unit: "requests", Source: recorded})
				s.evidence = append(s.evidence, allowed,
					Evidence{Fact: "request latency, p50 and p99", Value: nanoseconds(float64(slow.l.Total.Quantile(0.5))) + ", " + nanoseconds(float64(slow.l.Total.Quantile(0.99))), Source: recorded})
			}
			out = append(out, s)
		}
	}
	return out
}

// roomFor says why a connection to a port of a pod was accepted in time: its accept queue had
// room. Empty where it had none, of which it adds the evidence.
func (v *View) roomFor(p *observe.Pod, port int, s *sign) string {
	for _, service := range v.Services {
		for _, l := range service.Listeners {
			if l.Port != port || v.podOfProcess(l.PID).pod != p {
				continue
			}
			if l.Drops < fewAffected {
				return fmt.Sprintf("the probe only connects, and the accept queue of port %d had room: %s", port, ofLimit(l.QueuePeak, l.Limit, "connections"))
			}
			s.evidence = slices.Insert(s.evidence, 1, Evidence{Fact: fmt.Sprintf("connection attempts dropped at port %d, which the probe connects to", port), Value: l.Drops, Unit: "SYNs", Source: "sock_diag sk_drops"})
			return ""
		}
	}
	return fmt.Sprintf("the probe only connects, and of port %d nothing is known", port)
}

// slownessOf compares the requests of a container with the time that a probe allows: those
// at the port that it asks, where requests are recorded there. Of a container that answers
// nobody it says nothing: it may be stuck, and the probe right.
func (v *View) slownessOf(at inPod, p *observe.Probe) *slowness {
	s := &slowness{}
	for _, l := range v.podLedgers().of[at.pod] {
		if l.Requests <= l.failedRequests() {
			continue
		}
		if s.l == nil || l.Port == p.Port && s.l.Port != p.Port || l.Requests > s.l.Requests && (l.Port == p.Port) == (s.l.Port == p.Port) {
			scale := float64(l.Requests) / float64(max(l.Total.Count(), 1))
			s.l, s.requests = l, l.Requests+l.waiting()
			s.late = uint64(float64(l.Total.Above(int64(p.TimeoutSeconds)*1e9))*max(1, scale)) + l.waiting()
		}
	}
	return s
}

// killedByProbe is what says that the kubelet ended a container for its probe within the
// window, and when: an event, or an end by a signal that nothing else explains.
func (v *View) killedByProbe(at inPod) (Evidence, float64) {
	if e, n := v.events(at.pod, "Killing", "liveness probe"); e != nil && (e.Container == "" || e.Container == at.container.Name) && e.At >= 0 && e.At <= v.Window.Seconds {
		return Evidence{Fact: e.Message, Value: n, Unit: "times", Source: "events"}, e.At
	}
	last := &at.container.Last
	if at.container.Restarts > 0 && last.At > -wholeSecond && last.At <= v.Window.Seconds && last.Reason != "OOMKilled" && (last.ExitCode == 128+sigterm || last.ExitCode == 128+sigkill) {
		return Evidence{Fact: "ended by a signal", Value: "exit code " + itoa(last.ExitCode), Source: "status.containerStatuses"}, last.At
	}
	return Evidence{}, 0
}

// wholeSecond is how much earlier than it was a time in a status may be.
const wholeSecond = 1

// Signals with which the kubelet ends a container (signal(7)).
const (
	sigkill = 9
	sigterm = 15
)

// probeCommand gives a probe twice the time that all but the slowest hundredth of the
// requests take.
func (at inPod) probeCommand(field string, p *observe.Probe, s *slowness) shell.Command {
	want := p.TimeoutSeconds + 1
	if p.Kind == "tcp" {
		want = max(want, synsAgain)
	} else if s.l != nil {
		want = max(want, min(int(math.Ceil(2e-9*float64(s.l.Total.Quantile(0.99)))), longestProbe))
	}
	return at.patchContainer(field, map[string]any{field: map[string]any{"timeoutSeconds": want, "failureThreshold": max(p.FailureThreshold, 3)}})
}

func containsFold(text, word string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(word))
}
