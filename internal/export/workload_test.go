package export

import (
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// TestWorkloads: both ends of a request have the attributes that OpenTelemetry has for
// them, also those with names of 4 kB.
func TestWorkloads(t *testing.T) {
	x := New(Options{Host: "node-7"})
	r := store.Request{Request: observe.Request{Side: observe.Served}}
	r.Process = observe.Identity{Comm: "nginx", Container: "0123456789ab", ContainerName: "k8s_web",
		Workload: observe.Workload{Namespace: "shop", Pod: "cart-1", Container: "web", Kind: "Deployment", Name: "cart", Node: "node-7", Zone: "b"}}
	r.PeerWorkload = observe.Workload{Namespace: strings.Repeat("<\n", 2048), Kind: "Service", Name: "front"}
	var span *tracepb.Span
	data := x.spansOf([]store.Request{r}, func(_ int, s *tracepb.Span) { span = s })
	got := map[string]string{}
	for _, a := range append(data.ResourceSpans[0].Resource.Attributes, span.Attributes...) {
		got[a.Key] = a.Value.GetStringValue()
	}
	for key, want := range map[string]string{
		"service.name": "cart", "container.name": "web", "k8s.namespace.name": "shop", "k8s.pod.name": "cart-1", "k8s.container.name": "web",
		"k8s.deployment.name": "cart", "k8s.node.name": "node-7", "cloud.availability_zone": "b", "slowray.peer.k8s.service.name": "front",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if ns := got["slowray.peer.k8s.namespace.name"]; ns == "" || len(ns) > maxK8s || strings.Contains(ns, "\n") {
		t.Errorf("%q", ns)
	}
}
