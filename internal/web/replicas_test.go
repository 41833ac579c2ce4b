package web

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// TestAnotherPodOfTheWorkload: when a pod takes the place of another, the finding goes on, and
// it names the workload; another workload's is another one.
func TestAnotherPodOfTheWorkload(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	found := func(minute int, name, pod string) store.Finding {
		f := cause.Finding{Cause: cause.CPUQuotaThrottled, Subject: cause.Subject{Kind: "cgroup", Comm: "cart", PID: minute, NetNS: uint64(minute), Path: "/kubepods/" + pod,
			Workload: observe.Workload{Namespace: "shop", Pod: pod, Container: "app", Kind: "Deployment", Name: name}}}
		from := start.Add(time.Duration(minute) * time.Minute)
		return store.Finding{Start: from, End: from.Add(time.Minute), Finding: f}
	}
	list := []store.Finding{found(0, "cart", "cart-a"), found(1, "cart", "cart-b"), found(1, "stock", "stock-a")}
	all := merge(list, windowSpans(nil, list), timeRange{start, start.Add(time.Hour)})
	if len(all) != 2 || all[0].Windows != 2 || all[1].Windows != 1 {
		t.Fatalf("%d findings: %+v", len(all), all)
	}
	if all[0].Where != "deploy/cart (ns shop), container app" || all[1].Where != "deploy/stock (ns shop), container app" {
		t.Errorf("%q, %q", all[0].Where, all[1].Where)
	}
}
