package grammar

import (
	"reflect"
	"testing"

	"github.com/slowray/slowray/lab/server"
)

// TestDraws: a number gives the same draw again, its fault changes something, and hops
// do not get in each other's way.
func TestDraws(t *testing.T) {
	seen := map[string]int{}
	for n := 1; n <= 6*len(kinds); n++ {
		d, again := New(17, n, false), New(17, n, false)
		if d.Shape != again.Shape || !reflect.DeepEqual(d.Setup(), again.Setup()) {
			t.Errorf("draw %d is not the same twice: %+v, %+v", n, d.Shape, again.Shape)
		}
		seen[d.Shape.Kind]++
		if len(d.Faults) == 0 || d.Shape.Cause == "" || d.Shape.Cause != d.Faults[0].Cause {
			t.Fatalf("draw %d, %+v: faults %+v", n, d.Shape, d.Faults)
		}
		one := d.Faults[:1]
		if reflect.DeepEqual(d.Setup(), d.Injected(one)) && d.LoadWith(one) == d.Load {
			t.Errorf("draw %d, %+v: its fault changes nothing", n, d.Shape)
		}
		ports, names := map[int]bool{}, map[string]bool{}
		for i, h := range d.Setup().Hops {
			if ports[h.Port] || names[h.Name] {
				t.Errorf("draw %d: hop %d, %+v: its port or name is taken", n, i, h)
			}
			ports[h.Port], names[h.Name] = true, true
			if h.Loopback && !h.Apart && i > 0 && d.Setup().Hops[i-1].Apart {
				t.Errorf("draw %d: hop %d is on 127.0.0.1, and who calls it in another namespace", n, i)
			}
		}
		if hops := d.Setup().Hops; d.Setup().Kind == server.Chain && hops[len(hops)-1].Language == "nginx" {
			t.Errorf("draw %d: a proxy with nobody behind it", n)
		}
		if h := New(17, n, true); len(h.Faults) != 0 || !h.Control || h.Shape.Cause != "" || h.Load.None() {
			t.Errorf("draw %d without a fault: %+v", n, h)
		}
	}
	for _, k := range kinds {
		if seen[k.name] != 6 {
			t.Errorf("%s was drawn %d times of 6", k.name, seen[k.name])
		}
	}
}

// TestShapesDiffer: what is drawn is rarely the same twice.
func TestShapesDiffer(t *testing.T) {
	shapes := map[string]int{}
	const all = 400
	for n := 1; n <= all; n++ {
		shapes[New(23, n, false).Shape.Key()]++
	}
	if len(shapes) < all*7/10 {
		t.Errorf("%d shapes in %d draws", len(shapes), all)
	}
}
