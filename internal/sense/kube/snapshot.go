package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slowray/slowray/internal/observe"
)

// Query says what a window is interested in.
type Query struct {
	Start      time.Time           // of the window
	Containers map[string]bool     // with a process of interest; nil: all pods of the node
	Peers      map[netip.Addr]bool // that were called
}

// Bounds of what is reported of one window.
const (
	toldPods     = 512
	toldServices = 256
	toldEvents   = 512
	toldSpaces   = 16 // namespaces whose events and autoscalers are asked for
	maxMessage   = 512
	// patience is how long a window waits for what is asked for at its end.
	patience = 1500 * time.Millisecond
)

// Window is what is known of a window that ends now; nil where this host is no node. The
// errors say what of it could not be read, one line each.
func (k *Kube) Window(ctx context.Context, q Query) (*observe.Kubernetes, []error) {
	if k == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-k.looked:
	case <-ctx.Done():
	}
	if !k.node.Load() {
		return nil, nil
	}
	if k.kubelet != nil && !k.told() {
		k.kubelet.again(ctx) // what happened within the window
	}
	out := k.state.window(q)
	if k.api != nil && k.api.core != nil {
		k.api.window(ctx, out, q.Start)
	}
	var errs []error
	if k.cri != nil {
		out.Sources = append(out.Sources, k.cri.source())
	}
	if k.kubelet != nil && !k.told() {
		out.Sources = append(out.Sources, k.kubelet.source())
	}
	for _, s := range out.Sources {
		if s.Error != "" {
			errs = append(errs, fmt.Errorf("%s %s: %s", s.Name, s.Where, s.Error))
		}
	}
	if k.api != nil {
		s, partial := k.api.source()
		if !k.api.pods.listed.Load() && s.Error == "" {
			s.Error = "no answer yet"
			partial = append(partial, errors.New(s.Error))
		}
		out.Sources = append(out.Sources, s)
		for _, err := range partial {
			errs = append(errs, fmt.Errorf("API server %s: %s", s.Where, line(err)))
		}
	}
	return out, errs
}

// window is what the sources said that matters to a query.
func (s *state) window(q Query) *observe.Kubernetes {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &observe.Kubernetes{Node: s.node}
	out.Node.Name, out.Node.Zone = cmp.Or(out.Node.Name, s.name), cmp.Or(out.Node.Zone, s.zones[s.name])
	now := time.Now()
	ours := map[netip.Addr]string{}
	for _, p := range s.pods {
		if !q.wants(p, now) {
			continue
		}
		for _, a := range p.addrs {
			if !p.HostNetwork && p.gone.IsZero() {
				ours[a] = p.UID
			}
		}
		out.Pods = append(out.Pods, p.at(q))
	}
	slices.SortFunc(out.Pods, func(a, b observe.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	out.Pods = out.Pods[:min(len(out.Pods), toldPods)]
	out.Services = s.servicesOf(ours, q.Peers, q.Start)
	return out
}

// wants says whether a pod is of interest.
func (q *Query) wants(p *pod, now time.Time) bool {
	if !p.gone.IsZero() || !p.ended.IsZero() {
		return now.Sub(cmp.Or(p.ended, p.gone)) < lately
	}
	return q.Containers == nil || slices.ContainsFunc(p.past, func(r past) bool { return q.Containers[r.id] })
}

// at is the pod with times that count from the beginning of a window.
func (p *pod) at(q Query) observe.Pod {
	out := p.Pod
	origin := secondsOf(q.Start)
	since := func(t *float64) {
		if *t != 0 {
			*t -= origin
		}
	}
	since(&out.ReadySince)
	since(&out.CreatedAt)
	if out.DeletedAt == 0 {
		out.DeletedAt = secondsOf(p.gone)
	}
	since(&out.DeletedAt)
	out.Containers, out.Volumes = slices.Clone(out.Containers), slices.Clone(out.Volumes)
	for i := range out.Containers {
		c := &out.Containers[i]
		since(&c.Started)
		since(&c.Last.At)
	}
	return out
}

// servicesOf are those that serve from these addresses, or have one that was called.
func (s *state) servicesOf(ours map[netip.Addr]string, called map[netip.Addr]bool, start time.Time) []observe.KubeService {
	wanted := map[string]bool{}
	for key, o := range s.services {
		if slices.ContainsFunc(o.addrs, func(a netip.Addr) bool { return called[a] }) {
			wanted[key] = true
		}
	}
	for _, sl := range s.slices {
		for i := range sl.endpoints {
			if a := sl.endpoints[i].addr; called[a] || ours[a] != "" {
				wanted[sl.service] = true
				break
			}
		}
	}
	var keys []string
	for key := range wanted {
		if s.services[key] != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var out []observe.KubeService
	at := map[string]int{}
	for _, key := range keys[:min(len(keys), toldServices)] {
		o := s.services[key]
		svc := observe.KubeService{Namespace: o.namespace, Name: o.name, Ports: o.ports, Selects: o.selects, EndpointsKnown: s.endpointsKnown}
		for _, a := range o.addrs {
			svc.IPs = append(svc.IPs, a.String())
		}
		for _, l := range s.left[key] {
			if !l.at.Before(start) && !slices.Contains(svc.Left, l.pod) {
				svc.Left = append(svc.Left, l.pod)
			}
		}
		at[key] = len(out)
		out = append(out, svc)
	}
	now := time.Now().UnixNano()
	for _, sl := range s.slices {
		i, ok := at[sl.service]
		if !ok {
			continue
		}
		for _, e := range sl.endpoints {
			to := observe.KubeEndpoint{Address: e.addr.String(), Port: int(sl.port), Ready: e.state&ready != 0, Serving: e.state&serving != 0, Terminating: e.state&terminating != 0}
			if w, ok := s.index.At(e.addr, now); ok {
				to.Pod, to.Node = w.Pod, w.Node
			}
			out[i].Endpoints = append(out[i].Endpoints, to)
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Endpoints, func(a, b observe.KubeEndpoint) int {
			return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
		})
	}
	return out
}

// window asks for what nobody watches: the node, events and autoscalers.
func (a *api) window(ctx context.Context, out *observe.Kubernetes, start time.Time) {
	names := map[string]map[string]bool{} // of pods, by namespace
	for i := range out.Pods {
		p := &out.Pods[i]
		if names[p.Namespace] == nil && len(names) < toldSpaces {
			names[p.Namespace] = map[string]bool{}
		}
		if names[p.Namespace] != nil {
			names[p.Namespace][p.Name] = true
		}
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	var events []observe.KubeEvent
	var scalers []observe.KubeAutoscaler
	ask := func(what string, do func() error) {
		asking.Go(func() {
			err := do()
			if err != nil && ctx.Err() != nil && !a.answers(what) {
				return // it was reported: nothing new in that
			}
			a.failed(what, brief(err))
		})
	}
	ask("nodes", func() error { return a.readNode(ctx) })
	ask("events", func() error {
		list, err := a.events(ctx, "", "involvedObject.kind=Node,involvedObject.name="+a.node, func(string, string) bool { return true }, start)
		mu.Lock()
		defer mu.Unlock()
		events = append(events, list...)
		return err
	})
	for namespace, pods := range names {
		ask("horizontalpodautoscalers", func() error {
			list, err := a.autoscalers(ctx, namespace, out.Pods)
			mu.Lock()
			defer mu.Unlock()
			scalers = append(scalers, list...)
			return err
		})
		ask("events", func() error {
			list, err := a.events(ctx, namespace, "", func(kind, name string) bool {
				return kind == "Pod" && pods[name] || kind == "HorizontalPodAutoscaler"
			}, start)
			mu.Lock()
			defer mu.Unlock()
			events = append(events, list...)
			return err
		})
	}
	for namespace := range claimSpaces(out.Pods) {
		ask("persistentvolumeclaims", func() error {
			claims, err := a.claims(ctx, namespace)
			mu.Lock()
			defer mu.Unlock()
			nameClaims(out.Pods, namespace, claims)
			return err
		})
	}
	asking.Wait()
	scaled := map[string]bool{}
	for _, h := range scalers {
		scaled[h.Namespace+"/"+h.Name] = true
	}
	events = slices.DeleteFunc(events, func(e observe.KubeEvent) bool {
		return e.Kind == "HorizontalPodAutoscaler" && !scaled[e.Namespace+"/"+e.Name]
	})
	slices.SortFunc(events, func(a, b observe.KubeEvent) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Name, b.Name), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(scalers, func(a, b observe.KubeAutoscaler) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out.Events, out.Autoscalers = events[max(0, len(events)-toldEvents):], scalers
	a.state.mu.Lock()
	out.Node = a.state.node
	a.state.mu.Unlock()
	out.Node.Name = cmp.Or(out.Node.Name, a.node)
}

// claimSpaces are the namespaces of pods with a claim.
func claimSpaces(pods []observe.Pod) map[string]bool {
	out := map[string]bool{}
	for i := range pods {
		if p := &pods[i]; len(out) < toldSpaces && slices.ContainsFunc(p.Volumes, func(v observe.PodVolume) bool { return v.Claim != "" }) {
			out[p.Namespace] = true
		}
	}
	return out
}

// claims are those of a namespace, by name.
func (a *api) claims(ctx context.Context, namespace string) (map[string]*corev1.PersistentVolumeClaimSpec, error) {
	out := map[string]*corev1.PersistentVolumeClaimSpec{}
	o := metav1.ListOptions{Limit: 500}
	for range 4 {
		list, err := page[*corev1.PersistentVolumeClaimList](ctx, a.core, namespace, "persistentvolumeclaims", o)
		if err != nil {
			return out, err
		}
		for i := range list.Items {
			out[clip(list.Items[i].Name)] = &list.Items[i].Spec
		}
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
	}
	return out, nil
}

// nameClaims says of the volumes of pods which PersistentVolume and StorageClass they have.
func nameClaims(pods []observe.Pod, namespace string, claims map[string]*corev1.PersistentVolumeClaimSpec) {
	for i := range pods {
		for j := range pods[i].Volumes {
			v := &pods[i].Volumes[j]
			if c := claims[v.Claim]; c != nil && pods[i].Namespace == namespace && v.Claim != "" {
				v.Volume = clip(c.VolumeName)
				if c.StorageClassName != nil {
					v.Class = clip(*c.StorageClassName)
				}
			}
		}
	}
}

// answers says that what was asked for last was answered.
func (a *api) answers(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err[what] == nil
}

// Labels of a node.
const labelZone = "topology.kubernetes.io/zone"

func (a *api) readNode(ctx context.Context) error {
	n, err := get[*corev1.Node](ctx, a.core, "", "nodes", a.node)
	if err != nil {
		return err
	}
	out := observe.KubeNode{Name: clip(n.Name), Zone: clip(n.Labels[labelZone]), AllocatableCPU: cpus(n.Status.Allocatable), AllocatableMem: bytesOf(n.Status.Allocatable)}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			out.Pressure = append(out.Pressure, "NotReady")
		case c.Type != corev1.NodeReady && strings.HasSuffix(string(c.Type), "Pressure") && c.Status == corev1.ConditionTrue && len(out.Pressure) < 8:
			out.Pressure = append(out.Pressure, clip(string(c.Type)))
		}
	}
	a.state.mu.Lock()
	defer a.state.mu.Unlock()
	a.state.node = out
	if out.Zone != "" {
		a.state.zones[a.node] = out.Zone
	}
	return nil
}

// events are those of a namespace that matter, of the last quarter of an hour.
func (a *api) events(ctx context.Context, namespace, fields string, wanted func(kind, name string) bool, start time.Time) ([]observe.KubeEvent, error) {
	var out []observe.KubeEvent
	o := metav1.ListOptions{FieldSelector: fields, Limit: 500}
	for range 4 {
		list, err := page[*corev1.EventList](ctx, a.core, namespace, "events", o)
		if err != nil {
			return out, err
		}
		for i := range list.Items {
			if e := &list.Items[i]; wanted(e.InvolvedObject.Kind, e.InvolvedObject.Name) {
				if told, ok := eventOf(e, start); ok {
					out = append(out, told)
				}
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
	}
	return out, nil
}

func eventOf(e *corev1.Event, start time.Time) (observe.KubeEvent, bool) {
	// core/v1 counts in Count; events.k8s.io/v1 in a series.
	last, first, count := e.LastTimestamp.Time, e.FirstTimestamp.Time, e.Count
	if e.Series != nil {
		last, first, count = e.Series.LastObservedTime.Time, e.EventTime.Time, e.Series.Count
	}
	if last.IsZero() {
		last = cmp.Or(e.EventTime.Time, e.CreationTimestamp.Time)
	}
	if last.Before(start.Add(-lately)) {
		return observe.KubeEvent{}, false
	}
	out := observe.KubeEvent{At: last.Sub(start).Seconds(), Count: int(max(count, 0)), Warning: e.Type == corev1.EventTypeWarning, Reason: clip(e.Reason),
		Kind: clip(e.InvolvedObject.Kind), Namespace: clip(e.InvolvedObject.Namespace), Name: clip(e.InvolvedObject.Name), Message: printableLine(e.Message, maxMessage)}
	if !first.IsZero() && first.Unix() > 0 && first.Before(last) {
		out.First = first.Sub(start).Seconds()
	}
	if _, name, ok := strings.Cut(e.InvolvedObject.FieldPath, "{"); ok { // spec.containers{web}
		out.Container = clip(strings.TrimSuffix(name, "}"))
	}
	return out, true
}

// autoscalers are those of a namespace that scale what these pods belong to.
func (a *api) autoscalers(ctx context.Context, namespace string, pods []observe.Pod) ([]observe.KubeAutoscaler, error) {
	list, err := page[*autoscalingv2.HorizontalPodAutoscalerList](ctx, a.scaling, namespace, "horizontalpodautoscalers", metav1.ListOptions{Limit: 500})
	if err != nil {
		return nil, err
	}
	var out []observe.KubeAutoscaler
	for i := range list.Items {
		h := &list.Items[i]
		kind, target := clip(h.Spec.ScaleTargetRef.Kind), clip(h.Spec.ScaleTargetRef.Name)
		if !slices.ContainsFunc(pods, func(p observe.Pod) bool { return p.Namespace == namespace && p.Kind == kind && p.Owner == target }) {
			continue
		}
		told := observe.KubeAutoscaler{Namespace: namespace, Name: clip(h.Name), Kind: kind, Target: target, Min: 1, Max: int(h.Spec.MaxReplicas),
			Current: int(h.Status.CurrentReplicas), Desired: int(h.Status.DesiredReplicas), StabilizeDownSeconds: -1}
		if h.Spec.MinReplicas != nil {
			told.Min = int(*h.Spec.MinReplicas)
		}
		if b := h.Spec.Behavior; b != nil && b.ScaleDown != nil && b.ScaleDown.StabilizationWindowSeconds != nil {
			told.StabilizeDownSeconds = int(*b.ScaleDown.StabilizationWindowSeconds)
		}
		out = append(out, told)
	}
	return out, nil
}
