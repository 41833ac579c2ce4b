package kube

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/kube/owner"
)

// pod is one of this node, as the best source tells of it. Its times are seconds since
// 1970 until a window asks for it.
type pod struct {
	observe.Pod
	addrs []netip.Addr
	node  string
	from  time.Time // when it had its addresses at the latest
	ended time.Time // when all of its containers had ended; zero while one may run
	past  []past    // containers that it had before, or whose ids are of interest
	gone  time.Time // when it was found to be no more
	rank  int       // how good the source is
}

// past is one run of a container.
type past struct {
	name, id   string
	from, to   time.Time
	terminated bool
}

// Bounds of what one pod may have: more is left out.
const (
	maxContainers = 64
	maxAddrs      = 8
	maxVolumes    = 64
	maxDNSOptions = 16
)

func seconds(t metav1.Time) float64 { return secondsOf(t.Time) }

func secondsOf(t time.Time) float64 {
	if t.IsZero() || t.Unix() <= 0 {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}

// podOf takes what is needed from a pod of the kubelet or the API server.
func podOf(p *corev1.Pod) *pod {
	out := &pod{node: clip(p.Spec.NodeName)}
	out.UID, out.Namespace, out.Name = clip(string(p.UID)), clip(p.Namespace), clip(p.Name)
	kind, name := owner.Of(p.Name, p.Labels, p.OwnerReferences, p.CreationTimestamp.Time)
	out.Kind, out.Owner = clip(kind), clip(name)
	out.HostNetwork, out.Phase, out.QoS = p.Spec.HostNetwork, clip(string(p.Status.Phase)), clip(string(p.Status.QOSClass))
	out.CreatedAt, out.DNSPolicy = seconds(p.CreationTimestamp), clip(string(p.Spec.DNSPolicy))
	if p.DeletionTimestamp != nil {
		// It is the time by which it is to have ended.
		if p.DeletionGracePeriodSeconds != nil {
			out.GraceSeconds = max(*p.DeletionGracePeriodSeconds, 0)
		}
		out.DeletedAt = seconds(*p.DeletionTimestamp) - float64(out.GraceSeconds)
	}
	for _, c := range p.Status.Conditions {
		at := c.LastTransitionTime
		switch {
		case c.Type == corev1.PodReady:
			out.Ready, out.ReadySince = c.Status == corev1.ConditionTrue, seconds(at)
		case c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue:
			out.began(at.Time)
		}
	}
	if d := p.Spec.DNSConfig; d != nil {
		for _, o := range d.Options[:min(len(d.Options), maxDNSOptions)] {
			option := observe.DNSOption{Name: clip(o.Name)}
			if o.Value != nil {
				option.Value = clip(*o.Value)
			}
			out.DNSOptions = append(out.DNSOptions, option)
		}
	}
	for _, ip := range p.Status.PodIPs {
		out.address(ip.IP)
	}
	out.address(p.Status.PodIP)
	out.containers(p)
	out.volumes(p)
	return out
}

func (p *pod) began(at time.Time) {
	if at.Unix() > 0 && (p.from.IsZero() || at.Before(p.from)) {
		p.from = at
	}
}

func (p *pod) address(s string) {
	addr, err := netip.ParseAddr(s)
	if err != nil || len(p.addrs) >= maxAddrs {
		return
	}
	for _, a := range p.addrs {
		if a == addr {
			return
		}
	}
	p.addrs, p.IPs = append(p.addrs, addr), append(p.IPs, addr.String())
}

func (p *pod) containers(from *corev1.Pod) {
	status := map[string]*corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{from.Status.InitContainerStatuses, from.Status.ContainerStatuses} {
		for i := range list {
			status[list[i].Name] = &list[i]
		}
	}
	over := from.Status.Phase == corev1.PodSucceeded || from.Status.Phase == corev1.PodFailed || from.DeletionTimestamp != nil
	var last time.Time
	add := func(c *corev1.Container, init bool) {
		if len(p.Containers) >= maxContainers {
			return
		}
		out := containerOf(c, init)
		if st := status[c.Name]; st != nil {
			p.run(&out, st)
			if t := st.State.Terminated; t == nil && st.State.Running != nil {
				over = false
			} else if t != nil && t.FinishedAt.After(last) {
				last = t.FinishedAt.Time
			}
		}
		p.Containers = append(p.Containers, out)
	}
	for i := range from.Spec.InitContainers {
		add(&from.Spec.InitContainers[i], true)
	}
	for i := range from.Spec.Containers {
		add(&from.Spec.Containers[i], false)
	}
	if over && !last.IsZero() {
		p.ended = last.Add(time.Second) // its times are whole seconds
	}
}

// run takes how a container runs and ran.
func (p *pod) run(c *observe.PodContainer, st *corev1.ContainerStatus) {
	c.ID, c.ImageID = containerID(st.ContainerID), clip(imageID(st.ImageID))
	c.Image = cmp.Or(c.Image, clip(st.Image)) // the status has any of the names that the node knows the image by
	c.Ready, c.Restarts = st.Ready, int(max(st.RestartCount, 0))
	switch s := &st.State; {
	case s.Running != nil:
		c.State, c.Started = "running", seconds(s.Running.StartedAt)
		p.ran(c.Name, c.ID, s.Running.StartedAt.Time, time.Time{})
	case s.Terminated != nil:
		c.State, c.Reason, c.Started = "terminated", clip(s.Terminated.Reason), seconds(s.Terminated.StartedAt)
		p.ran(c.Name, c.ID, s.Terminated.StartedAt.Time, s.Terminated.FinishedAt.Time)
		c.Last = exitOf(s.Terminated)
	case s.Waiting != nil:
		c.State, c.Reason = "waiting", clip(s.Waiting.Reason)
	}
	if t := st.LastTerminationState.Terminated; t != nil {
		p.ran(c.Name, containerID(t.ContainerID), t.StartedAt.Time, t.FinishedAt.Time)
		c.Last = exitOf(t)
	}
}

func (p *pod) ran(name, id string, from, to time.Time) {
	p.began(from)
	if id != "" {
		p.past = append(p.past, past{name, id, from, to, !to.IsZero()})
	}
}

func exitOf(t *corev1.ContainerStateTerminated) observe.PodExit {
	return observe.PodExit{Reason: clip(t.Reason), ExitCode: int(t.ExitCode), Signal: int(t.Signal), At: seconds(t.FinishedAt)}
}

// imageID is the beginning of an image's digest, as in observe.Container.
func imageID(s string) string {
	if _, digest, ok := strings.Cut(s, "sha256:"); ok {
		return digest[:min(len(digest), shownID)]
	}
	return ""
}

func containerOf(c *corev1.Container, init bool) observe.PodContainer {
	out := observe.PodContainer{Name: clip(c.Name), Image: clip(c.Image), Init: init}
	r := &c.Resources
	out.CPURequest, out.CPULimit = cpus(r.Requests), cpus(r.Limits)
	out.MemoryRequest, out.MemoryLimit = bytesOf(r.Requests), bytesOf(r.Limits)
	out.Liveness, out.Readiness, out.Startup = probeOf(c, c.LivenessProbe), probeOf(c, c.ReadinessProbe), probeOf(c, c.StartupProbe)
	out.PreStop = c.Lifecycle != nil && c.Lifecycle.PreStop != nil
	return out
}

func cpus(l corev1.ResourceList) float64 { return float64(max(l.Cpu().MilliValue(), 0)) / 1000 }

func bytesOf(l corev1.ResourceList) uint64 { return uint64(max(l.Memory().Value(), 0)) }

// probeOf is a probe with the defaults of the API (k8s.io/api/core/v1, Probe).
func probeOf(c *corev1.Container, p *corev1.Probe) *observe.Probe {
	if p == nil {
		return nil
	}
	or := func(n int32, otherwise int) int {
		if n > 0 {
			return int(n)
		}
		return otherwise
	}
	out := &observe.Probe{DelaySeconds: int(max(p.InitialDelaySeconds, 0)), TimeoutSeconds: or(p.TimeoutSeconds, 1),
		PeriodSeconds: or(p.PeriodSeconds, 10), FailureThreshold: or(p.FailureThreshold, 3)}
	switch {
	case p.HTTPGet != nil:
		out.Kind, out.Path, out.Port = "http", clip(p.HTTPGet.Path), portOf(c, p.HTTPGet.Port)
	case p.TCPSocket != nil:
		out.Kind, out.Port = "tcp", portOf(c, p.TCPSocket.Port)
	case p.GRPC != nil:
		out.Kind, out.Port = "grpc", int(p.GRPC.Port)
	case p.Exec != nil:
		out.Kind = "exec"
	default:
		return nil
	}
	return out
}

func portOf(c *corev1.Container, port intstr.IntOrString) int {
	if port.Type == intstr.Int {
		return port.IntValue()
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort)
		}
	}
	return 0
}

// volumes takes those that lie on a disk or a server: what the kubelet writes itself, as
// secrets, is in memory.
func (p *pod) volumes(from *corev1.Pod) {
	known := map[string]observe.PodVolume{}
	for _, v := range from.Spec.Volumes {
		out := observe.PodVolume{Name: clip(v.Name)}
		switch {
		case v.PersistentVolumeClaim != nil:
			out.Kind, out.Claim = "persistentVolumeClaim", clip(v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil: // its claim is named after both
			out.Kind, out.Claim = "ephemeral", clip(from.Name+"-"+v.Name)
		case v.EmptyDir != nil && v.EmptyDir.Medium == "":
			out.Kind = "emptyDir"
		case v.HostPath != nil:
			out.Kind = "hostPath"
		case v.NFS != nil:
			out.Kind = "nfs"
		case v.CSI != nil:
			out.Kind = "csi"
		default:
			continue
		}
		known[v.Name] = out
	}
	add := func(container, volume, path string, block bool) {
		if v, ok := known[volume]; ok && len(p.Volumes) < maxVolumes {
			v.Container, v.Path, v.Block = clip(container), printableLine(path, 512), block
			p.Volumes = append(p.Volumes, v)
		}
	}
	for _, list := range [][]corev1.Container{from.Spec.Containers, from.Spec.InitContainers} {
		for i := range list {
			c := &list[i]
			for _, m := range c.VolumeMounts {
				add(c.Name, m.Name, m.MountPath, false)
			}
			for _, d := range c.VolumeDevices {
				add(c.Name, d.Name, d.DevicePath, true)
			}
		}
	}
}

// workload is who it is, but for its containers.
func (p *pod) workload(zone string) observe.Workload {
	return observe.Workload{Namespace: p.Namespace, Pod: p.Name, Kind: p.Kind, Name: p.Owner, Node: p.node, Zone: zone}
}
