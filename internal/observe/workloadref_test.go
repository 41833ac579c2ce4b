package observe

import "testing"

func TestWorkloadRef(t *testing.T) {
	cart := Workload{Namespace: "shop", Pod: "cart-7d9f8b6c5d-x2x4z", Container: "app", Kind: "Deployment", Name: "cart"}
	for s, want := range map[string]bool{
		"shop/cart": true, "shop/cart-7d9f8b6c5d-x2x4z": true, "shop/deploy/cart": true, "shop/Deployment/cart": true, "shop/pod/cart-7d9f8b6c5d-x2x4z": true,
		"other/cart": false, "shop/sts/cart": false, "shop/pod/cart": false, "shop/car": false,
		"shop/cart/app": true, "shop/cart-7d9f8b6c5d-x2x4z/app": true, "shop/deploy/cart/app": true, "shop/deploy/cart/proxy": false, "shop/cart/proxy": false, "shop/house/cart": false,
	} {
		r, err := ParseWorkloadRef(s)
		if err != nil || r.Is(&cart) != want {
			t.Errorf("%s: %t (%v), want %t", s, r.Is(&cart), err, want)
		}
	}
	for _, s := range []string{"", "cart", "shop/", "/cart", "shop/cart/", "shop/deploy/", "shop//app", "shop/house/cart/app", "a/pod/b/c/d"} {
		if r, err := ParseWorkloadRef(s); err == nil {
			t.Errorf("%q is %+v", s, r)
		}
	}
	k := &Kubernetes{Pods: []Pod{
		{Namespace: "shop", Name: cart.Pod, Kind: "Deployment", Owner: "cart", Containers: []PodContainer{{Name: "app", ID: "aaaaaaaaaaaa"}, {}, {Name: "proxy", ID: "bbbbbbbbbbbb"}}},
		{Namespace: "shop", Name: "db-0", Kind: "StatefulSet", Owner: "db", Containers: []PodContainer{{ID: "cccccccccccc"}}},
	}}
	r, _ := ParseWorkloadRef("shop/deploy/cart")
	f := Filter{Container: k.ContainersOf(r)}
	for id, want := range map[string]bool{"aaaaaaaaaaaa": true, "bbbbbbbbbbbb": true, "cccccccccccc": false, "": false} {
		if f.InContainer(id) != want {
			t.Errorf("%q: %t, want %t", id, !want, want)
		}
	}
	if r, _ = ParseWorkloadRef("shop/cart/proxy"); k.ContainersOf(r) != "bbbbbbbbbbbb" {
		t.Errorf("one container: %q", k.ContainersOf(r))
	}
	if w := k.WorkloadOf("cccccccccccc", ""); w == nil || w.String() != "shop/db-0" || w.Controller() != "shop/db" {
		t.Errorf("%+v", w)
	}
}
