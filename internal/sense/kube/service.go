package kube

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/workload"
)

// service is what a window needs of one.
type service struct {
	uid, namespace, name string
	created              time.Time
	addrs                []netip.Addr
	ports                []observe.KubeServicePort
	selects              bool
}

// slice is the endpoints of one EndpointSlice. There may be very many.
type slice struct {
	service   string // its key
	port      int32
	endpoints []endpoint
}

type endpoint struct {
	addr  netip.Addr
	tag   workload.Tag // of the pod, 0 where it is none's
	state uint8        // ready, serving, terminating
}

const (
	ready = 1 << iota
	serving
	terminating
)

const (
	kindService = "Service" // of a Workload whose address is a service's

	maxPorts     = 64
	maxEndpoints = 1000 // of a slice, as the API has it
)

func keyOf(namespace, name string) string { return clip(namespace) + "/" + clip(name) }

// serviceSaid takes a service.
func (s *state) serviceSaid(o *corev1.Service, now time.Time, gone bool) string {
	key := keyOf(o.Namespace, o.Name)
	out := &service{uid: clip(string(o.UID)), namespace: clip(o.Namespace), name: clip(o.Name), created: o.CreationTimestamp.Time, selects: len(o.Spec.Selector) > 0}
	ips := append(append([]string{o.Spec.ClusterIP}, o.Spec.ClusterIPs...), o.Spec.ExternalIPs...)
	for _, in := range o.Status.LoadBalancer.Ingress {
		ips = append(ips, in.IP)
	}
	for _, ip := range ips {
		if a := addr(ip); a.IsValid() && len(out.addrs) < maxAddrs && !contains(out.addrs, a) {
			out.addrs = append(out.addrs, a)
		}
	}
	for _, p := range o.Spec.Ports {
		if len(out.ports) < maxPorts {
			out.ports = append(out.ports, observe.KubeServicePort{Name: clip(p.Name), Protocol: clip(string(p.Protocol)), Port: int(p.Port), Target: clip(p.TargetPort.String()), NodePort: int(p.NodePort)})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.services[key]
	switch {
	case gone:
		delete(s.services, key)
	case before == nil && len(s.services) >= maxServices:
		return key
	default:
		s.services[key] = out
	}
	s.claimService(out, now, gone)
	if before != nil {
		for _, a := range before.addrs {
			if !contains(out.addrs, a) {
				s.index.DropAddress(a, workload.Services, s.index.TagOf(before.uid), now.UnixNano())
			}
		}
	}
	return key
}

func (s *state) claimService(o *service, now time.Time, gone bool) {
	from := o.created
	if from.Unix() <= 0 || from.After(now) {
		from = now
	}
	c := &workload.Claim{Source: workload.Services, UID: o.uid, From: from.UnixNano(),
		Who: observe.Workload{Namespace: o.namespace, Kind: kindService, Name: o.name}}
	if gone {
		c.To = until(from, now)
	}
	for _, a := range o.addrs {
		s.index.Address(a, c)
	}
}

// servicesAre ends those that are not in a list.
func (s *state) servicesAre(seen map[string]bool, known time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.services {
		if !seen[key] {
			delete(s.services, key)
			s.claimService(o, known, true)
		}
	}
}

func contains(list []netip.Addr, a netip.Addr) bool {
	for _, b := range list {
		if a == b {
			return true
		}
	}
	return false
}

// sliceSaid takes the endpoints of a service, and tells the index of those that are new
// and of those that are not there any more.
func (s *state) sliceSaid(o *discoveryv1.EndpointSlice, now time.Time, gone bool) string {
	key := keyOf(o.Namespace, o.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.slices[key]
	if before == nil && (gone || len(s.slices) >= maxSlices) {
		return key
	}
	if before == nil {
		before = &slice{}
	}
	after := &slice{service: keyOf(o.Namespace, o.Labels[discoveryv1.LabelServiceName])}
	if len(o.Ports) > 0 && o.Ports[0].Port != nil {
		after.port = *o.Ports[0].Port
	}
	had := make(map[endpoint]bool, len(before.endpoints))
	for _, e := range before.endpoints {
		had[endpoint{addr: e.addr, tag: e.tag}] = true
	}
	if !gone {
		after.endpoints = make([]endpoint, 0, min(len(o.Endpoints), maxEndpoints))
		for i := range o.Endpoints[:min(len(o.Endpoints), maxEndpoints)] {
			s.endpointSaid(after, &o.Endpoints[i], o.Namespace, had, now)
		}
		s.slices[key] = after
	} else {
		delete(s.slices, key)
	}
	for e, gone := range had {
		if gone && e.tag != 0 {
			s.leaves(before.service, e.addr, now)
			s.index.DropAddress(e.addr, workload.Slices, e.tag, now.UnixNano())
		}
	}
	return key
}

// left is a pod of this node that is behind a service no more.
type left struct {
	pod string
	at  time.Time
}

const mostLeft = 16 // of a service

// leaves notes who had an address behind a service until now, where it is a pod of this node.
func (s *state) leaves(service string, a netip.Addr, now time.Time) {
	w, known := s.index.At(a, now.UnixNano()-1)
	if !known || w.Pod == "" || w.Node != s.name {
		return
	}
	list := append(s.left[service], left{w.Pod, now})
	s.left[service] = list[max(0, len(list)-mostLeft):]
}

// endpointSaid adds an endpoint to a slice, and takes it out of what the slice had.
func (s *state) endpointSaid(to *slice, e *discoveryv1.Endpoint, namespace string, had map[endpoint]bool, now time.Time) {
	if len(e.Addresses) == 0 {
		return
	}
	out := endpoint{addr: addr(e.Addresses[0])}
	if !out.addr.IsValid() {
		return
	}
	c := &e.Conditions
	out.state = flag(c.Ready, ready, true) | flag(c.Serving, serving, c.Ready == nil || *c.Ready) | flag(c.Terminating, terminating, false)
	who := observe.Workload{Namespace: clip(namespace)}
	if e.NodeName != nil {
		who.Node = clip(*e.NodeName)
	}
	if e.Zone != nil {
		who.Zone = clip(*e.Zone)
		if _, known := s.zones[who.Node]; who.Node != "" && !known && len(s.zones) < maxZones {
			s.zones[strings.Clone(who.Node)] = strings.Clone(who.Zone)
		}
	}
	if t := e.TargetRef; t != nil && t.Kind == "Pod" && t.UID != "" {
		out.tag, who.Pod = s.index.TagOf(string(t.UID)), clip(t.Name)
		key := endpoint{addr: out.addr, tag: out.tag}
		if left, known := had[key]; known {
			if left {
				had[key] = false
			}
		} else {
			s.index.Address(out.addr, &workload.Claim{Source: workload.Slices, UID: string(t.UID), Who: who, From: now.UnixNano()})
			had[key] = false
		}
	}
	to.endpoints = append(to.endpoints, out)
}

func flag(b *bool, bit uint8, otherwise bool) uint8 {
	if b != nil && *b || b == nil && otherwise {
		return bit
	}
	return 0
}

// slicesAre ends those that are not in a list.
func (s *state) slicesAre(seen map[string]bool, known time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpointsKnown = true
	for key, o := range s.slices {
		if seen[key] {
			continue
		}
		delete(s.slices, key)
		for _, e := range o.endpoints {
			if e.tag != 0 {
				s.index.DropAddress(e.addr, workload.Slices, e.tag, known.UnixNano())
			}
		}
	}
}
