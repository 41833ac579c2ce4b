package cause

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// inPod is a container of a pod of this node. Its zero value is nobody; container is
// nil where only the pod is known.
type inPod struct {
	pod       *observe.Pod
	container *observe.PodContainer
	node      *observe.KubeNode
}

// podIndex finds pods by what processes, control groups and addresses say of them.
type podIndex struct {
	byContainer map[string]inPod // by the container's id
	byUID       map[string]*observe.Pod
	byAddr      map[netip.Addr]*observe.Pod // of several that had an address the one that lives, else the last
	byName      map[[2]string]*observe.Pod  // by namespace and name
	services    map[netip.Addr]*observe.KubeService
}

func (v *View) buildPods() *podIndex {
	x := &podIndex{map[string]inPod{}, map[string]*observe.Pod{}, map[netip.Addr]*observe.Pod{}, map[[2]string]*observe.Pod{}, map[netip.Addr]*observe.KubeService{}}
	if v.Kubernetes == nil {
		return x
	}
	for i := range v.Kubernetes.Pods {
		p := &v.Kubernetes.Pods[i]
		x.byUID[p.UID], x.byName[[2]string{p.Namespace, p.Name}] = p, p
		for j := range p.Containers {
			if c := &p.Containers[j]; c.ID != "" {
				x.byContainer[c.ID] = inPod{p, c, &v.Kubernetes.Node}
			}
		}
		for _, ip := range p.IPs {
			if a := address(ip).Unmap(); a.IsValid() && !p.HostNetwork {
				if o := x.byAddr[a]; o == nil || !v.gone(p) && (v.gone(o) || o.CreatedAt <= p.CreatedAt) || v.gone(o) && o.DeletedAt <= p.DeletedAt {
					x.byAddr[a] = p
				}
			}
		}
	}
	for i := range v.Kubernetes.Services {
		s := &v.Kubernetes.Services[i]
		for _, ip := range s.IPs {
			if a := address(ip).Unmap(); a.IsValid() {
				x.services[a] = s
			}
		}
	}
	return x
}

// gone says that a pod does not run any more when the window ends: it ended by itself,
// or was asked to and all its containers have.
func (v *View) gone(p *observe.Pod) bool {
	return p.Phase == "Succeeded" || p.Phase == "Failed" ||
		p.DeletedAt != 0 && !slices.ContainsFunc(p.Containers, func(c observe.PodContainer) bool { return c.State == "running" })
}

// podUID is the pod that a control group's path names: ".../pod<UID>/...", and with
// systemd's driver ".../kubepods-burstable-pod<UID>.slice/...", in which "_" stands for
// "-" (pkg/kubelet/cm/cgroup_manager_linux.go of Kubernetes). A --cgroup-root stands before
// "kubepods" too, as kind's "kubelet-kubepods-…"; and a runtime with the other driver than the
// kubelet's makes "kubepods-…-pod<UID>.slice:cri-containerd:<id>".
func podUID(path string) string {
	for part := range strings.SplitSeq(path, "/") {
		part, _, _ = strings.Cut(part, ".slice")
		if strings.Contains(part, "kubepods-") {
			part = part[strings.LastIndexByte(part, '-')+1:]
		}
		if uid, ok := strings.CutPrefix(part, "pod"); ok && uid != "" {
			return strings.ReplaceAll(uid, "_", "-")
		}
	}
	return ""
}

// podOf is the pod that a container, by its id, or a control group belongs to. A
// container that was started again has another id than the one that ended: of a pod with
// one container it is that, else the one that ended before.
func (v *View) podOf(containerID, path string) inPod {
	if at, known := v.pods().byContainer[containerID]; known {
		return at
	}
	p := v.pods().byUID[podUID(path)]
	if p == nil {
		return inPod{}
	}
	at := inPod{pod: p, node: &v.Kubernetes.Node}
	own := slices.DeleteFunc(slices.Clone(p.Containers), func(c observe.PodContainer) bool { return c.Init })
	if len(own) > 1 {
		own = slices.DeleteFunc(own, func(c observe.PodContainer) bool { return c.Last == observe.PodExit{} })
	}
	if len(own) == 1 {
		at.container = at.named(own[0].Name)
	}
	return at
}

// named is the container of the pod with a name, or nil.
func (at inPod) named(name string) *observe.PodContainer {
	for i := range at.pod.Containers {
		if c := &at.pod.Containers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// podOfProcess is the pod that a process runs in.
func (v *View) podOfProcess(pid int) inPod {
	if p := v.Process(pid); p != nil && (p.Container != "" || p.Cgroup != "") {
		return v.podOf(p.Container, p.Cgroup)
	}
	return inPod{}
}

// podLedgers are the endpoints that pods serve.
type podLedgers struct {
	of map[*observe.Pod][]*ledger
	by map[podServes]bool
}

type podServes struct {
	l   *ledger
	pod *observe.Pod
}

func (v *View) findPodLedgers() podLedgers {
	x := podLedgers{map[*observe.Pod][]*ledger{}, map[podServes]bool{}}
	for _, l := range v.ledgers {
		if l.called() {
			continue
		}
		// One pod may have taken another's place at the same address.
		for _, pid := range append([]int{l.pid}, l.PIDs...) {
			if at := v.podOfProcess(pid); at.pod != nil && !x.by[podServes{l, at.pod}] {
				x.of[at.pod], x.by[podServes{l, at.pod}] = append(x.of[at.pod], l), true
			}
		}
	}
	return x
}

// podOfSubject is the pod that a finding is about.
func (v *View) podOfSubject(s *Subject) inPod {
	if v.Kubernetes == nil {
		return inPod{}
	}
	if s.Kind == "cgroup" || s.Container != "" {
		if at := v.podOf(s.Container, s.Path); at.pod != nil {
			return at
		}
	}
	return v.podOfProcess(s.PID)
}

// SubjectWorkload is whom a finding is about in Kubernetes, or the zero Workload.
func (v *View) SubjectWorkload(s *Subject) observe.Workload {
	if s.Workload != (observe.Workload{}) {
		return s.Workload
	}
	return v.podOfSubject(s).workload()
}

func (at inPod) workload() observe.Workload {
	switch {
	case at.pod == nil:
		return observe.Workload{}
	case at.container == nil:
		return at.pod.Workload("", at.node)
	}
	return at.pod.Workload(at.container.Name, at.node)
}

func (at inPod) text() string { return at.workload().ContainerText() }

// specs are where the kinds that kubectl edits keep the specification of their pods.
var specs = map[string]string{
	"Deployment": "spec.template.spec", "StatefulSet": "spec.template.spec", "DaemonSet": "spec.template.spec",
	"ReplicaSet": "spec.template.spec", "ReplicationController": "spec.template.spec", "CronJob": "spec.jobTemplate.spec.template.spec",
}

// rollsOut says that kubectl rollout knows the kind of what the pod belongs to.
func (at inPod) rollsOut() bool {
	return at.pod != nil && at.pod.Owner != "" && slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, at.pod.Kind)
}

// spec is the way to the pod's specification in the manifest that a person edits.
func (at inPod) spec() string {
	if way, known := specs[at.pod.Kind]; known {
		return way
	}
	return "spec"
}

// field is the way to a field of the container in that manifest.
func (at inPod) field(name string) string {
	if at.container == nil {
		return at.spec() + ".containers[]." + name
	}
	return at.spec() + "." + at.list() + "[name=" + at.container.Name + "]." + name
}

// list is the field of the specification that has the container.
func (at inPod) list() string {
	if at.container.Init {
		return "initContainers" // a sidecar, which goes on
	}
	return "containers"
}

// edit is a command of kubectl that changes the manifest; where kubectl edits none (a
// static pod, a Job, a kind of somebody else's operator), a note that names the field.
func (at inPod) edit(field string, verb, rest shell.Command) shell.Command {
	kind, name := at.pod.Kind, at.pod.Owner
	if _, known := specs[kind]; known && name != "" {
		return shell.Line("kubectl -n %s", shell.Word(at.pod.Namespace)).Then(verb).Then(shell.Line("%s", shell.Operand(strings.ToLower(kind)+"/"+name))).Then(rest)
	}
	w := at.workload()
	return shell.Line("# in the manifest of %s: %s", w.Text(), field)
}

// setResource sets "limits.cpu" or the like of the container.
func (at inPod) setResource(resource, amount string) shell.Command {
	group, what, _ := strings.Cut(resource, ".")
	return at.edit(at.field("resources."+resource)+"="+amount, shell.Line("set resources"), at.only(shell.Line("--%s=%s=%s", group, what, amount)))
}

func (at inPod) setEnv(name, value string) shell.Command {
	return at.edit(at.field("env")+" "+name+"="+value, shell.Line("set env"), at.only(shell.Line("%s=%s", name, value)))
}

// only limits what follows to the container.
func (at inPod) only(rest shell.Command) shell.Command {
	if at.container == nil {
		return rest
	}
	return shell.Line("-c %s", shell.KubeName(at.container.Name)).Then(rest)
}

// patch changes the pod's specification, by a strategic merge.
func (at inPod) patch(field string, spec map[string]any) shell.Command {
	for _, key := range slices.Backward(strings.Split(at.spec(), ".")) {
		spec = map[string]any{key: spec}
	}
	return at.edit(field, shell.Line("patch"), shell.Line("--patch %s", jsonWord(spec)))
}

// patchContainer is patch of the container.
func (at inPod) patchContainer(field string, fields map[string]any) shell.Command {
	if at.container == nil {
		return shell.Line("# in the manifest of %s: %s", at.workload().Text(), at.field(field))
	}
	if c := shell.Line("kubectl %s", shell.KubeName(at.container.Name)); c.IsNote() {
		return c
	}
	fields["name"] = at.container.Name
	return at.patch(at.field(field), map[string]any{at.list(): []any{fields}})
}

// jsonWord is what JSON writes of plain values, which cannot fail.
func jsonWord(value any) shell.Word {
	text, _ := json.Marshal(value)
	return shell.Word(text)
}

// exitEvidence is how often a container was started again, and how it ended last.
func (v *View) exitEvidence(at inPod) []Evidence {
	if at.container == nil || at.container.Restarts == 0 && at.container.Last == (observe.PodExit{}) {
		return nil
	}
	c := at.container
	out := []Evidence{{Fact: "restarts of " + at.text(), Value: c.Restarts, Unit: "restarts", Source: "status.containerStatuses"}}
	if c.Last != (observe.PodExit{}) {
		out = append(out, Evidence{Fact: "its last exit", Value: lastExit(&c.Last, v.Window.Seconds), Source: "status.containerStatuses"})
	}
	return out
}

func lastExit(e *observe.PodExit, end float64) string {
	text := "exit code " + itoa(e.ExitCode)
	if e.Reason != "" {
		text = e.Reason + ", " + text
	}
	if e.At != 0 {
		text += ", " + seconds(end-e.At) + " before the end"
	}
	return text
}
