package kube

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/workload"
)

const (
	// leased is how long a pod that was asked for is believed to have its address. CNI
	// plugins give one out again after about as long, or after all others.
	leased = 30 * time.Second
	// noneFor is how long an address that no pod has is not asked for again.
	noneFor = 2 * time.Minute
	// byAddress is how often a pod is asked for by its address, for which the API server
	// goes through all.
	byAddress = 500 * time.Millisecond
	maxAsked  = 8 << 10
	maxFound  = 16 // pods that had an address, most of them over
)

// wondered is an address that a request went to, and what is known of who has it.
type wondered struct {
	addr netip.Addr
	who  observe.Workload
}

var carrierGrade = netip.MustParsePrefix("100.64.0.0/10") // some clusters give it to pods

// wonder asks for whoever has an address, where that is not known or lasts no longer. It
// does not wait.
func (a *api) wonder(addr netip.Addr, who observe.Workload) {
	addr = addr.Unmap()
	a.mu.Lock()
	defer a.mu.Unlock()
	next, met := a.wondered[addr]
	switch {
	case !met && (who.Kind != "" || who.Pod == "" && !addr.IsPrivate() && !carrierGrade.Contains(addr)), met && time.Now().Before(next), a.core == nil:
		return
	}
	if len(a.wondered) >= maxAsked {
		clear(a.wondered)
	}
	select {
	case a.ask <- wondered{addr, who}:
		a.wondered[addr] = time.Now().Add(leased / 2)
	default: // very many: later
	}
}

// answer asks for what was wondered about, one after the other.
func (a *api) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-a.ask:
			next, err := a.find(ctx, w)
			a.failed("pods", brief(err))
			a.mu.Lock()
			if next.IsZero() {
				delete(a.wondered, w.addr)
			} else {
				a.wondered[w.addr] = next
			}
			a.mu.Unlock()
		}
	}
}

// find asks for the pod of an address, and says when to ask again; never, where the
// endpoints of services tell of its end.
func (a *api) find(ctx context.Context, w wondered) (next time.Time, err error) {
	var found []corev1.Pod
	named := w.who.Pod != "" && w.who.Kind == ""
	if named {
		var p *corev1.Pod
		if p, err = get[*corev1.Pod](ctx, a.core, w.who.Namespace, "pods", w.who.Pod); apierrors.IsNotFound(err) {
			return time.Now().Add(leased), nil
		} else if err == nil {
			found = append(found, *p)
		}
	} else {
		var list *corev1.PodList
		list, err = page[*corev1.PodList](ctx, a.core, "", "pods", metav1.ListOptions{FieldSelector: "status.podIP=" + w.addr.String(), ResourceVersion: "0", Limit: maxFound})
		if err == nil {
			found = list.Items
		}
		select {
		case <-ctx.Done():
		case <-time.After(byAddress):
		}
	}
	now := time.Now()
	if err != nil {
		return now.Add(noneFor), err
	}
	lives := false
	for i := range found[:min(len(found), maxFound)] {
		p := podOf(&found[i])
		if !p.HostNetwork && p.UID != "" && contains(p.addrs, w.addr) {
			a.state.found(p, now)
			lives = lives || p.ended.IsZero()
		}
	}
	switch {
	case !lives:
		return now.Add(noneFor), nil
	case named:
		return time.Time{}, nil
	}
	return now.Add(leased / 2), nil
}

// found takes a pod that was asked for, which nobody watches.
func (s *state) found(p *pod, now time.Time) {
	from := p.from
	if from.IsZero() || from.After(now) {
		from = now
	}
	s.mu.Lock()
	zone := s.zones[p.node]
	s.mu.Unlock()
	c := &workload.Claim{Source: workload.Lookups, UID: p.UID, Who: p.workload(zone), From: from.UnixNano(), To: now.Add(leased).UnixNano(), Leased: true}
	if !p.ended.IsZero() {
		c.To, c.Leased = until(from, p.ended), false
	}
	for _, addr := range p.addrs {
		s.index.Address(addr, c)
	}
}
