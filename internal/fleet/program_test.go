package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
)

func TestProgramsOf(t *testing.T) {
	got := ProgramsOf(&observe.Observation{
		Containers: []observe.Container{
			{ID: "aaaaaaaaaaaa", Name: "shop", Image: "shop/web:2", ImageID: "3f9ab1c2d3e4"},
			{ID: "bbbbbbbbbbbb", Name: "shop-2", Image: "sha256:77", ImageID: "770000000000"},
			{ID: "cccccccccccc", Name: "", Image: "quay.io/x:1"},
			{ID: "dddddddddddd", Name: "k8s_cart", Image: "shop/cart:latest"}, // as containerd's bundle tells
			{ID: "eeeeeeeeeeee", Name: "k8s_db", Image: "shop/db:1", ImageID: "0e0e0e0e0e0e"},
			{ID: "111111111111", Name: "same", Image: "shop/web:2"},
			{ID: "222222222222", Name: "same", Image: "shop/web:2", ImageID: "3f9ab1c2d3e4"},
			{ID: "333333333333", Name: "same", Image: "shop/web:latest", ImageID: "3f9ab1c2d3e4"},
			{ID: "444444444444", Name: "two", Image: "shop/web:2", ImageID: "3f9ab1c2d3e4"},
			{ID: "555555555555", Name: "two", Image: "shop/web:2"},
			{ID: "666666666666", Name: "two", Image: "shop/web:2", ImageID: "4f9ab1c2d3e4"},
			{ID: "ffffffffffff", Name: "pinned", Image: "x/y:1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
		},
		Kubernetes: &observe.Kubernetes{Pods: []observe.Pod{
			{Namespace: "shop", Name: "cart-1", Kind: "Deployment", Owner: "cart", Containers: []observe.PodContainer{{ID: "dddddddddddd", Image: "shop/cart:latest", ImageID: "4f4f4f4f4f4f"}}},
			{Namespace: "shop", Name: "db-0", Kind: "StatefulSet", Owner: "db", Containers: []observe.PodContainer{{ID: "eeeeeeeeeeee", Image: "shop/db:1"}}},
		}},
		Processes: []observe.Process{
			{PID: 1, Comm: "nginx", Unit: "nginx.service", ProgramVersion: "p1", ConfigVersion: "c1"},
			{PID: 2, Comm: "python3", Container: "aaaaaaaaaaaa", ProgramVersion: "p2"},
			{PID: 3, Comm: "python3", Container: "bbbbbbbbbbbb", ProgramVersion: "p3"},
			{PID: 4, Comm: "x", Container: "cccccccccccc", ProgramVersion: "p4"},
			{PID: 5, Comm: "bash"}, // answers nothing
			{PID: 10, Comm: "cart", Container: "dddddddddddd", ProgramVersion: "p10"},
			{PID: 11, Comm: "postgres", Container: "eeeeeeeeeeee", ProgramVersion: "p11"},
			{PID: 12, Comm: "y", Container: "ffffffffffff", ProgramVersion: "p12"},
			// Two of one name: what they have in common stays.
			{PID: 6, Comm: "redis-server", ProgramVersion: "p6", ConfigVersion: "c6"},
			{PID: 7, Comm: "redis-server", ProgramVersion: "p6", ConfigVersion: "c7"},
			{PID: 8, Comm: "redis-server", ProgramVersion: "p6", ConfigVersion: "c6"},
			{PID: 9, Comm: "redis-server", ConfigVersion: "c6"},
			// One image by two names, and by a name only, and two by one name.
			{PID: 13, Comm: "a", Container: "111111111111", ProgramVersion: "p"},
			{PID: 14, Comm: "a", Container: "222222222222", ProgramVersion: "p"},
			{PID: 15, Comm: "a", Container: "333333333333", ProgramVersion: "p"},
			{PID: 16, Comm: "b", Container: "444444444444", ProgramVersion: "p"},
			{PID: 17, Comm: "b", Container: "555555555555", ProgramVersion: "p"},
			{PID: 18, Comm: "b", Container: "666666666666", ProgramVersion: "p"},
		},
	})
	want := map[string]Program{
		"nginx":        {Version: "p1", Config: "c1"},
		"shop":         {Image: "shop/web:2@3f9ab1c2d3e4", Version: "p2"},
		"shop-2":       {Image: "sha256:770000000000", Version: "p3"},
		"x":            {Image: "quay.io/x:1", Version: "p4"},
		"redis-server": {Version: "p6"},
		"same":         {Image: "shop/web:2@3f9ab1c2d3e4", Version: "p"},
		"two":          {Version: "p"},
		"shop/cart":    {Image: "shop/cart:latest@4f4f4f4f4f4f", Version: "p10"},
		"shop/db":      {Image: "shop/db:1@0e0e0e0e0e0e", Version: "p11"},
		"pinned":       {Image: "x/y:1@0123456789ab", Version: "p12"},
	}
	for image, want := range map[string]string{"shop/cart:latest@4f4f4f4f4f4f": "4f4f4f4f4f4f", "sha256:770000000000": "770000000000", "quay.io/x:1": "", "": ""} {
		if id := ImageID(image); id != want {
			t.Errorf("%q: %q, want %q", image, id, want)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for k, want := range map[Key]string{
		{Service: "nginx:80", Side: observe.Served}: "nginx", {Service: "nginx", Side: observe.Called}: "nginx", {Service: ":80", Side: observe.Served}: ":80",
	} {
		if got := ProgramOf(&k); got != want {
			t.Errorf("%v: %q, want %q", k, got, want)
		}
	}
}
