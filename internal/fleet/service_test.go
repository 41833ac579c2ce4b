package fleet

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

func TestServiceOfWorkload(t *testing.T) {
	cart := observe.Workload{Namespace: "shop", Pod: "cart-7d9f8b6c5d-x2x4z", Kind: "Deployment", Name: "cart"}
	p := observe.Identity{Comm: "nginx", Unit: "kubelet.service", ContainerName: "k8s_web", Workload: cart}
	if got := Service(observe.Served, &p, 8080); got != "shop/cart:8080" {
		t.Error(got)
	}
	if got := Service(observe.Called, &p, 8080); got != "shop/cart" {
		t.Error(got)
	}
	o := &observe.Observation{
		Processes:  []observe.Process{{Comm: "nginx", Container: "0123456789ab", ProgramVersion: "1"}},
		Kubernetes: &observe.Kubernetes{Pods: []observe.Pod{{Namespace: "shop", Name: cart.Pod, Kind: "Deployment", Owner: "cart", Containers: []observe.PodContainer{{ID: "0123456789ab"}}}}},
	}
	if got := ProgramsOf(o); got["shop/cart"].Version != "1" {
		t.Errorf("%+v", got)
	}
}
