package incident

import (
	"reflect"
	"strings"
	"testing"
)

// A fault that changes nothing would be "removed" without effect, and never
// be missed.
func TestFaultsChangeTheSetup(t *testing.T) {
	for _, i := range All() {
		for _, f := range i.Faults {
			one := []Fault{f}
			if reflect.DeepEqual(i.Setup(), i.Injected(one)) && i.Load == i.LoadWith(one) {
				t.Errorf("%s: %s injects nothing", i.Name, f.Name)
			}
			if !f.Decoy && f.Cause == "" || f.Decoy && f.RuledOut == "" {
				t.Errorf("%s: %s says not what to expect", i.Name, f.Name)
			}
		}
	}
}

// Steps are fixed from the front; decoys stay to the end.
func TestDecoysComeLast(t *testing.T) {
	for _, i := range All() {
		decoy := false
		for _, f := range i.Faults {
			if decoy && !f.Decoy {
				t.Errorf("%s: %s comes after a decoy", i.Name, f.Name)
			}
			decoy = decoy || f.Decoy
		}
	}
}

func TestFind(t *testing.T) {
	if _, err := Find("nginx-throughput"); err != nil {
		t.Error(err)
	}
	if _, err := Find("nginx"); err == nil || !strings.Contains(err.Error(), "nginx-throughput") {
		t.Errorf("error %v does not list the incidents", err)
	}
}

// What is said of names that are not there says nothing.
func TestCalmIncidents(t *testing.T) {
	for name := range calm {
		i, err := Find(name)
		if err != nil {
			t.Error(err)
		} else if !i.Calm() || i.Light {
			t.Errorf("%s: it is said to be calm, and cannot be injected next to others, or is Light anyway", name)
		}
	}
}
