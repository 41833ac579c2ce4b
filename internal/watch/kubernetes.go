package watch

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/kube"
)

// kubernetes asks what is known of the pods of the window, while the rest is read.
type kubernetes struct {
	answer chan pods
}

type pods struct {
	known *observe.Kubernetes
	errs  []error
}

// stop asks.
func (k *kubernetes) stop(s *session) {
	if s.opt.Kube == nil {
		return
	}
	k.answer = make(chan pods, 1)
	q := kube.Query{Start: s.out.Window.Start, Containers: map[string]bool{}, Peers: called(s.out)}
	for _, list := range [][]host.ProcSample{s.procs, s.last.procs} {
		for i := range list {
			if c := list[i].Container; c != "" {
				q.Containers[c] = true
			}
		}
	}
	go func() {
		var p pods
		p.known, p.errs = s.opt.Kube.Window(s.ctx, q)
		k.answer <- p
	}()
}

// called is who was called: also in vain, as is what goes to a service that has no endpoint,
// and the nameservers.
func called(o *observe.Observation) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	add := func(addr string) {
		if a, err := netip.ParseAddr(addr); err == nil {
			out[a.Unmap()] = true
		}
	}
	for i := range o.Endpoints {
		if e := &o.Endpoints[i]; e.Side == observe.Called.String() {
			add(e.Addr)
		}
	}
	for i := range o.Connects {
		add(o.Connects[i].Addr) // that of a unix socket is none
	}
	for i := range o.DNS {
		for _, server := range o.DNS[i].Servers {
			add(server.Addr)
		}
	}
	return out
}

// end takes the answer, and says who the other ends of requests are.
func (k *kubernetes) end(s *session) {
	if k.answer == nil {
		return
	}
	p := <-k.answer
	s.out.Kubernetes = p.known
	for _, err := range p.errs {
		s.partialGap(observe.KindKubernetes, 0, "", err)
	}
	if p.known == nil {
		return
	}
	at := s.out.Window.Start.UnixNano() + int64(s.out.Window.Seconds*1e9)
	in := map[int]observe.Identity{} // by process
	for i := range s.out.Processes {
		if o := &s.out.Processes[i]; o.Container != "" {
			id := observe.Identity{Container: o.Container}
			if w := p.known.WorkloadOf(o.Container, o.Cgroup); w != nil {
				id.Workload = *w
			}
			in[o.PID] = id
		}
	}
	who := func(pid int, addr string, at int64) *observe.Workload {
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return nil
		}
		id := in[pid]
		if w := s.opt.Kube.PeerOf(&id, a, at); w != (observe.Workload{}) {
			return &w
		}
		return nil
	}
	for i := range s.out.Endpoints {
		e := &s.out.Endpoints[i]
		if e.Side == observe.Called.String() {
			e.Workload = who(e.PID, e.Addr, at)
			for _, list := range [][]observe.RequestSample{e.Slowest, e.Failed} {
				for j := range list {
					led(&list[j], e.Workload, who)
				}
			}
		}
		for j := range e.Peers {
			e.Peers[j].Workload = who(e.PID, e.Peers[j].Addr, at)
		}
	}
}

// led says who had the address that a call was led to instead of that of asked.
func led(r *observe.RequestSample, asked *observe.Workload, who func(pid int, addr string, at int64) *observe.Workload) {
	to, err := netip.ParseAddrPort(r.Destination)
	if err != nil {
		return
	}
	if r.Workload = who(r.PID, to.Addr().String(), r.StartNS+r.TotalNS); r.Workload != nil && asked != nil && asked.Pod == "" {
		r.Workload.Service = asked.Name
	}
}
