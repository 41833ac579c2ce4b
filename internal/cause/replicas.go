package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ReplicasMissing: pods of a workload do not start: their image cannot be pulled, they end
// as soon as they begin, or they take long. Until they do the others get their load.
const ReplicasMissing ID = "replicas-missing"

var replicasMissing = podCause(ReplicasMissing, "Pods of a workload do not start", LayerMachine,
	[]Parent{ClassLimit, LivenessProbeKills, NodePressureEviction}, func(v *View) []sign {
		var out []sign
		for i := range v.Kubernetes.Pods {
			p := &v.Kubernetes.Pods[i]
			at, why := v.notStarted(p)
			if why == "" {
				continue
			}
			pods := v.replicas(p)
			running := slices.IndexFunc(pods, func(o *observe.Pod) bool { return o.Ready && o.DeletedAt == 0 })
			s := sign{at: at, text: "not started: " + why, to: v.aimAt(pods...), kinds: tollOverload}
			if running < 0 {
				s.kinds = tollCut | tollRefused
			}
			s.evidence = []Evidence{{Fact: "pod " + p.Name, Value: podState(p), Source: "status.containerStatuses"}}
			for _, reason := range []string{"Failed", "BackOff", "Pulled", "FailedScheduling", "FailedMount"} {
				if e, n := v.events(p, reason, ""); e != nil && len(s.evidence) < mostPodsShown {
					s.evidence = append(s.evidence, Evidence{Fact: e.Message, Value: n, Unit: "times", Source: "events"})
				}
			}
			s.evidence = append(s.evidence, v.exitEvidence(at)...)
			s.fix.Text = "See why it does not start: its image, its command or its configuration; undo the roll-out that brought it."
			s.fix.Commands = []shell.Command{shell.Line("kubectl -n %s describe pod %s", shell.Word(p.Namespace), shell.Operand(p.Name))}
			if at.container.Restarts > 0 {
				s.fix.Commands = append(s.fix.Commands, shell.Line("kubectl -n %s logs %s --previous", shell.Word(p.Namespace), shell.Operand(p.Name)).Then(at.only(shell.Command{})))
			}
			if at.rollsOut() {
				s.fix.Commands = append(s.fix.Commands, at.edit("", shell.Line("rollout undo"), shell.Command{}).Note("if it is new"))
			}
			out = append(out, s)
		}
		return out
	})

// notStarted is the container of a pod that keeps it from being ready since it began, and
// why, in Kubernetes' words; empty where none does.
func (v *View) notStarted(p *observe.Pod) (inPod, string) {
	if p.Ready || p.DeletedAt != 0 || v.gone(p) || v.Window.Seconds-p.CreatedAt < startsWithin {
		return inPod{}, ""
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		at := inPod{p, c, &v.Kubernetes.Node}
		age := v.Window.Seconds - c.Started
		switch {
		case c.State == "waiting":
			return at, cmp.Or(c.Reason, "waiting")
		case c.State == "running" && !c.Ready && !c.Init && c.Restarts == 0 && (c.Readiness != nil || c.Startup != nil) && age >= startsWithin && p.ReadySince <= c.Started:
			return at, fmt.Sprintf("it began %s ago and is not ready", seconds(age))
		}
	}
	return inPod{}, ""
}

// AutoscalerFlapping: a HorizontalPodAutoscaler takes pods away and adds them again within
// minutes. The new ones are cold, and those that go take requests along.
const AutoscalerFlapping ID = "autoscaler-flapping"

var autoscalerFlapping = podCause(AutoscalerFlapping, "The autoscaler adds and removes pods within minutes", LayerMachine, nil, func(v *View) []sign {
	var out []sign
	for i := range v.Kubernetes.Autoscalers {
		h := &v.Kubernetes.Autoscalers[i]
		sizes, turns := v.sizes(h)
		if turns == 0 {
			continue
		}
		var pods []*observe.Pod
		for j := range v.Kubernetes.Pods {
			if p := &v.Kubernetes.Pods[j]; p.Namespace == h.Namespace && p.Kind == h.Kind && p.Owner == h.Target {
				pods = append(pods, p)
			}
		}
		name := h.Namespace + "/" + h.Name
		s := sign{subject: Subject{Kind: "pod", Workload: observe.Workload{Namespace: h.Namespace, Kind: h.Kind, Name: h.Target, Node: v.Kubernetes.Node.Name}},
			text: fmt.Sprintf("autoscaler %s set %s replicas", name, sizes), to: v.aimAt(pods...), kinds: tollCut | tollRefused | tollOverload}
		if turns < flapsLeast {
			s.unless = "it changed direction once"
		}
		stable, want := h.StabilizeDownSeconds, 600
		if stable < 0 {
			stable = 300
		}
		want = max(want, 2*stable)
		s.evidence = []Evidence{
			{Fact: "replicas that it set, one after the other", Value: sizes, Source: "events SuccessfulRescale"},
			{Fact: "replicas allowed", Value: fmt.Sprintf("%d to %d", h.Min, h.Max), Source: "spec.minReplicas, maxReplicas"},
			{Fact: "it waits before it removes pods", Value: stable, Unit: "s", Source: "spec.behavior.scaleDown.stabilizationWindowSeconds"}}
		s.fix.Text = "Let it wait longer before it removes pods, and keep as many as the usual load takes. In the manifest: spec.behavior.scaleDown.stabilizationWindowSeconds, spec.minReplicas."
		spec := map[string]any{"behavior": map[string]any{"scaleDown": map[string]any{"stabilizationWindowSeconds": min(want, 3600)}}}
		s.fix.Commands = []shell.Command{shell.Line("kubectl -n %s patch hpa %s --patch %s", shell.Word(h.Namespace), shell.Operand(h.Name), jsonWord(map[string]any{"spec": spec}))}
		out = append(out, s)
	}
	return out
})

// sizes are the numbers of replicas that an autoscaler set, "3, 8, 3", by its events, and how
// often it changed direction. An event that was counted stands at its first and its last time.
func (v *View) sizes(h *observe.KubeAutoscaler) (text string, turns int) {
	type step struct {
		at   float64
		size int
	}
	var steps []step
	for i := range v.Kubernetes.Events {
		e := &v.Kubernetes.Events[i]
		if e.Reason != "SuccessfulRescale" || e.Namespace != h.Namespace || e.Name != h.Name {
			continue
		}
		_, rest, _ := strings.Cut(e.Message, "New size: ")
		digits, _, _ := strings.Cut(rest, ";")
		n, err := strconv.Atoi(strings.TrimSpace(digits))
		if err != nil {
			continue
		}
		steps = append(steps, step{e.At, n})
		if e.Count > 1 && e.First < e.At {
			steps = append(steps, step{e.First, n})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	var told []string
	way := 0
	for i, s := range steps {
		told = append(told, strconv.Itoa(s.size))
		if i == 0 || s.size == steps[i-1].size {
			continue
		}
		next := cmp.Compare(s.size, steps[i-1].size)
		if way != 0 && next != way {
			turns++
		}
		way = next
	}
	return strings.Join(told, ", "), turns
}

// NodePressureEviction: the kubelet ends pods because the node runs out of memory or disk.
// Pods that use far more than they request are why (pkg/kubelet/eviction).
const NodePressureEviction ID = "node-pressure-eviction"

var nodePressureEviction = podCause(NodePressureEviction, "The node is under pressure and evicts pods", LayerMachine, []Parent{DiskFull, InodesExhausted}, func(v *View) []sign {
	node := &v.Kubernetes.Node
	var out []sign
	for i := range v.Kubernetes.Pods {
		p := &v.Kubernetes.Pods[i]
		e, _ := v.events(p, "Evicted", "")
		if e == nil {
			continue
		}
		at := inPod{pod: p, node: node}
		s := sign{at: at, text: "evicted by the kubelet", to: v.aimAt(v.replicas(p)...), kinds: tollCut | tollRefused | tollOverload}
		s.evidence = []Evidence{{Fact: "eviction of " + p.Name, Value: e.Message, Source: "events"}}
		if len(node.Pressure) > 0 {
			s.evidence = append(s.evidence, Evidence{Fact: "conditions of node " + node.Name, Value: strings.Join(node.Pressure, ", "), Source: "status.conditions"})
		}
		s.fix.Text = "Request what the pods use, so that the scheduler leaves room, or give the node more."
		if big, used := v.overRequest(); big.pod != nil {
			s.evidence = append(s.evidence, Evidence{Fact: "memory of " + big.text() + ", and its request", Value: byteText(used), Limit: byteText(big.container.MemoryRequest), Unit: "requested", Source: "memory.current, " + big.field("resources.requests.memory")})
			s.fix.Text += fmt.Sprintf(" In the manifest: %s.", big.field("resources.requests.memory"))
			s.fix.Commands = []shell.Command{big.setResource("requests.memory", mebibytes(used))}
		}
		s.fix.Commands = append(s.fix.Commands, shell.Line("kubectl describe node %s", shell.Operand(node.Name)))
		out = append(out, s)
	}
	if len(out) == 0 && len(node.Pressure) > 0 {
		out = append(out, sign{text: "the node reports " + strings.Join(node.Pressure, ", "), unless: "no pod was evicted"})
	}
	return out
})

// overRequest is the container of this node that uses most memory beyond its request.
func (v *View) overRequest() (big inPod, used uint64) {
	var most uint64
	for i := range v.Cgroups {
		c := &v.Cgroups[i]
		at := v.podOf("", c.Path)
		if at.container != nil && c.MemoryUsedBytes > 2*at.container.MemoryRequest && c.MemoryUsedBytes-at.container.MemoryRequest > most {
			big, used, most = at, c.MemoryUsedBytes, c.MemoryUsedBytes-at.container.MemoryRequest
		}
	}
	return big, used
}
