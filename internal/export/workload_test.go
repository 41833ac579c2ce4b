package export

import (
	"strings"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

var cart = observe.Identity{Comm: "nginx", Container: "0123456789ab", ContainerName: "k8s_web",
	Workload: observe.Workload{Namespace: "shop", Pod: "cart-1", Container: "web", Kind: "Deployment", Name: "cart", Node: "node-7", Zone: "b"}}

// cartAttributes are whose program that is in the words of OpenTelemetry.
var cartAttributes = map[string]string{
	"service.name": "cart", "container.name": "web", "k8s.namespace.name": "shop", "k8s.pod.name": "cart-1", "k8s.container.name": "web",
	"k8s.deployment.name": "cart", "k8s.node.name": "node-7", "cloud.availability_zone": "b",
}

func wantAttributes(t *testing.T, of string, got, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s: %s is %q, want %q", of, key, got[key], value)
		}
	}
}

// TestWorkloads: both ends of a request have the attributes that OpenTelemetry has for
// them, also those with names of 4 kB.
func TestWorkloads(t *testing.T) {
	x := New(Options{Host: "node-7"})
	r := store.Request{Request: observe.Request{Side: observe.Served}}
	r.Process = cart
	r.PeerWorkload = observe.Workload{Namespace: strings.Repeat("<\n", 2048), Kind: "Service", Name: "front"}
	var span *tracepb.Span
	data := x.spansOf([]store.Request{r}, func(_ int, s *tracepb.Span) { span = s })
	got := attributesOf(append(data.ResourceSpans[0].Resource.Attributes, span.Attributes...))
	wantAttributes(t, "span", got, cartAttributes)
	wantAttributes(t, "span", got, map[string]string{"slowray.peer.k8s.service.name": "front"})
	if ns := got["slowray.peer.k8s.namespace.name"]; ns == "" || len(ns) > maxK8s || strings.Contains(ns, "\n") {
		t.Errorf("%q", ns)
	}
}

// TestWorkloadsOfMetrics: points of slowray's own metrics, and the resources of conventional
// ones and of profiles, have the attributes of spans, and none by the names of Prometheus;
// what the API server says later than the first requests comes to the same series.
func TestWorkloadsOfMetrics(t *testing.T) {
	early := cart
	early.Workload.Kind, early.Workload.Node, early.Workload.Zone = "", "", ""
	x := New(Options{Host: "web1", Node: "node-7", Conventions: true})
	var batch BatchSeconds
	for _, p := range []observe.Identity{early, cart} {
		s := secondOf(observe.Served, "10.0.0.1", 80, "nginx")
		s.Process = p
		x.Second(0, []store.Second{*s})
		batch = BatchSeconds{}
		batch.Add(s)
	}
	points := func(of string, list []*metricspb.Metric) {
		t.Helper()
		found := 0
		for _, m := range list {
			if m.Name != "slowray.requests" {
				continue
			}
			for _, p := range m.GetSum().DataPoints {
				found++
				got := attributesOf(p.Attributes)
				wantAttributes(t, of, got, cartAttributes)
				wantAttributes(t, of, got, map[string]string{"address": "10.0.0.1", "port": "80", "process": "nginx", "side": "served"})
				for name := range got {
					if name == "container" || strings.HasPrefix(name, "k8s_") {
						t.Errorf("%s has %s, a name of Prometheus", of, name)
					}
				}
			}
		}
		if found != 1 {
			t.Errorf("%s: %d points of slowray.requests", of, found)
		}
	}
	for m := range x.metrics() {
		list := m.(*metricspb.MetricsData).ResourceMetrics
		points("metric", list[0].ScopeMetrics[0].Metrics)
		wantAttributes(t, "slowray", attributesOf(list[0].Resource.Attributes), map[string]string{"service.name": "slowray", "k8s.node.name": "node-7"})
		wantAttributes(t, "conventional metric", attributesOf(list[1].Resource.Attributes), cartAttributes)
	}
	points("batch", batch.m.list())

	on, _ := stacksOf()
	data, _ := x.profiles([]*observe.Stacks{on}, map[int]observe.Identity{7: cart})
	wantAttributes(t, "profile", attributesOf(data.ResourceProfiles[0].Resource.Attributes), cartAttributes)
	wantAttributes(t, "profile", attributesOf(data.ResourceProfiles[0].Resource.Attributes), map[string]string{"process.executable.name": "app", "container.id": "0123456789ab"})
}

// TestSumsBeginWithAttributes: points with other attributes are other ones for who gets them:
// they have a start and sums of their own. What stays the same goes on, also with a long name.
func TestSumsBeginWithAttributes(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	x := New(Options{Now: func() time.Time { return now }})
	early := cart
	early.Unit = strings.Repeat("u", maxK8s+1)
	early.Workload.Kind, early.Workload.Node = "", ""
	late := early
	late.Workload = cart.Workload
	requests := uint64(len(durationsNS))
	for i, step := range []struct {
		who  observe.Identity
		want uint64 // of seconds
		from int
	}{{early, 1, 0}, {early, 2, 0}, {late, 1, 2}, {late, 2, 2}} {
		s := secondOf(observe.Served, "10.0.0.1", 80, "nginx")
		s.Process = step.who
		x.Second(0, []store.Second{*s})
		for m := range x.metrics() {
			for _, m := range m.(*metricspb.MetricsData).ResourceMetrics[0].ScopeMetrics[0].Metrics {
				if m.Name != "slowray.requests" {
					continue
				}
				p := m.GetSum().DataPoints[0]
				if from := 1_790_000_000 + int64(step.from); uint64(p.GetAsInt()) != step.want*requests || int64(p.StartTimeUnixNano) != from*1e9 {
					t.Errorf("second %d: %d since %d, want %d since %d s", i, p.GetAsInt(), p.StartTimeUnixNano, step.want*requests, from)
				}
			}
		}
		for _, s := range x.series {
			if s.exposed.since.AsTime().Unix() != s.since.Unix() {
				t.Errorf("second %d: an exposition says since %v", i, s.exposed.since)
			}
		}
		now = now.Add(time.Second)
	}
}

// TestPointsOfOthers: what is summed up over many programs is nobody's.
func TestPointsOfOthers(t *testing.T) {
	s := secondOf(observe.Served, other, 0, other)
	s.Process = cart
	var batch BatchSeconds
	batch.Add(s)
	got := attributesOf(batch.m.metrics["slowray.requests"].GetSum().DataPoints[0].Attributes)
	if len(got) != 3 || got["address"] != other || got["side"] != "served" || got["process"] != other {
		t.Errorf("%v", got)
	}
}

// TestContainersWithoutNames: where no engine names a container its id is what there is, and
// none is said where there is a name, as a series goes on in the next container.
func TestContainersWithoutNames(t *testing.T) {
	for name, want := range map[string]string{"": "0123456789ab", "web": ""} {
		s := secondOf(observe.Served, "10.0.0.1", 80, "nginx")
		s.Process = observe.Identity{Comm: "nginx", Container: "0123456789ab", ContainerName: name}
		var batch BatchSeconds
		batch.Add(s)
		got := attributesOf(batch.m.metrics["slowray.requests"].GetSum().DataPoints[0].Attributes)
		if got["container.id"] != want || got["container.name"] != name {
			t.Errorf("%q: %v", name, got)
		}
	}
}
