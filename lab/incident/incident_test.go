package incident

import (
	"reflect"
	"slices"
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

// What is under TLS is what it is in the clear, and clients and servers agree on how they talk.
func TestDoubled(t *testing.T) {
	doubled := 0
	for _, i := range All() {
		if !i.Doubled {
			continue
		}
		doubled++
		clear, err := Find(strings.TrimSuffix(i.Name, tlsSuffix))
		if err != nil || clear.Doubled {
			t.Errorf("%s: in the clear: %v", i.Name, err)
			continue
		}
		if !slices.Equal(i.Causes(), clear.Causes()) || i.Load.Conns != clear.Load.Conns || i.Load.Rate != clear.Load.Rate || i.Calm() != clear.Calm() {
			t.Errorf("%s is not %s", i.Name, clear.Name)
		}
		if l := i.LoadWith(i.Faults); !i.Injected(i.Faults).TLS.On || !l.TLS || l.UsesWrk() || clear.Setup().TLS.On || clear.Load.TLS {
			t.Errorf("%s: TLS at the servers %v, at the clients %v; in the clear %v, %v", i.Name, i.Injected(i.Faults).TLS.On, l.TLS, clear.Setup().TLS.On, clear.Load.TLS)
		}
	}
	if doubled != 13 {
		t.Errorf("%d incidents under TLS", doubled)
	}
	if i, err := Find("flock-holder-tls"); err != nil || len(i.Setup().Hops) != 1 {
		t.Errorf("a server that speaks no TLS, and has to have an nginx before it: %v, %v", i.Setup().Hops, err)
	}
}
