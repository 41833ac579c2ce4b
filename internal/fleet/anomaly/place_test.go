package anomaly

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// pods is 12 hosts with 10 services each: three of them in a pod of their own host, three
// in a slice for batches, the others by themselves.
func pods() (hosts []fleet.Host, all []fleet.Key, places map[fleet.Key]fleet.Place) {
	places = map[fleet.Key]fleet.Place{}
	for i := range 12 {
		name := fmt.Sprintf("node-%02d", i)
		hosts = append(hosts, fleet.Host{Name: name, Addresses: []string{fmt.Sprintf("10.0.2.%d", i)}})
		for n := range 10 {
			k := fleet.Key{Host: name, Service: fmt.Sprintf("svc%d:80%02d", (n+i)%10, n), Side: observe.Served, Addr: "0.0.0.0", Port: 8000 + n}
			all = append(all, k)
			switch {
			case n < 3:
				places[k] = fleet.Place{Cgroup: fmt.Sprintf("/kubepods.slice/pod%d/c%d", i, n), Container: "pay"}
			case n < 6:
				places[k] = fleet.Place{Cgroup: fmt.Sprintf("/batch.slice/job%d.service", n)}
			default:
				places[k] = fleet.Place{Cgroup: fmt.Sprintf("/system.slice/svc%d.service", n)}
			}
		}
	}
	return hosts, all, places
}

func TestAControlGroupExplainsWhatIsSlowInIt(t *testing.T) {
	hosts, all, places := pods()
	for _, c := range []struct {
		name string
		slow func(k fleet.Key) bool
		want Component
		text string
	}{
		{"a pod", func(k fleet.Key) bool { return k.Host == "node-03" && k.Port < 8003 },
			Component{Cgroup, "node-03:/kubepods.slice/pod3"}, "3 of 3 slow endpoints are in the control group /kubepods.slice/pod3 on node-03 (container pay); of the others 0 of 117."},
		{"a slice on all hosts", func(k fleet.Key) bool { return strings.HasPrefix(places[k].Cgroup, "/batch.slice/") },
			Component{Cgroup, "/batch.slice"}, "36 of 36 slow endpoints are in a control group /batch.slice; of the others 0 of 84."},
		{"a host", func(k fleet.Key) bool { return k.Host == "node-03" },
			Component{Host, "node-03"}, "10 of 10 slow endpoints are on host node-03; of the others 0 of 110."},
		{"a service", func(k fleet.Key) bool { return strings.HasPrefix(k.Service, "svc4:") },
			Component{}, ""},
	} {
		var list []Anomaly
		for _, k := range all {
			if c.slow(k) {
				list = append(list, slowly(k, 9_000, 9_000))
			}
		}
		x := Explain(list, all, Facts{Hosts: hosts, Places: places})
		if c.text == "" { // each is in another group
			for _, s := range x.Shared {
				if s.Kind == Cgroup {
					t.Errorf("%s: %s", c.name, s.Text)
				}
			}
			continue
		}
		if len(x.Shared) != 1 || x.Shared[0].Component != c.want || x.Text != c.text {
			t.Errorf("%s: %+v %q, want %+v %q", c.name, x.Shared, x.Text, c.want, c.text)
		}
		for _, s := range x.Shared {
			for _, also := range s.Also {
				if also.Kind == Cgroup {
					t.Errorf("%s: also %v", c.name, also)
				}
			}
		}
		// Without places it is what it was before.
		for _, s := range Explain(list, all, Facts{Hosts: hosts}).Shared {
			if s.Kind == Cgroup {
				t.Errorf("%s: %v, of nowhere", c.name, s.Component)
			}
		}
	}
}

func TestGroupOf(t *testing.T) {
	for value, want := range map[string][2]string{
		"/a/b": {"", "/a/b"}, "h:/a": {"h", "/a"}, "h:1:/a:/b": {"h:1", "/a:/b"}, "h": {"", "h"}, "": {"", ""},
	} {
		if host, path := GroupOf(value); host != want[0] || path != want[1] {
			t.Errorf("%q: %q %q", value, host, path)
		}
	}
}
