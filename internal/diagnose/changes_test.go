package diagnose

import (
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

func TestChangesAreRelativeToTheOnset(t *testing.T) {
	start := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	o := &observe.Observation{Window: observe.Window{Start: start, Seconds: 10}}
	o.Changes = []observe.Change{
		{Kind: observe.ChangeConfig, At: start.Add(4 * time.Second), What: "changed", Path: "/etc/nginx/nginx.conf"},
		{Kind: observe.ChangePackage, At: start.Add(-time.Hour), What: "nginx 1 → 2"},
		{Kind: observe.ChangeSetting, What: "vm.swappiness is 10, not 60"},
	}
	e := observe.Endpoint{Side: "served", Addr: "0.0.0.0", Port: 80, Requests: 100, Arrivals: make([]uint32, 100)}
	for i := range e.Arrivals {
		e.Arrivals[i] = 1
	}
	for range 90 {
		e.Total.Add(1e6)
	}
	for i := range 10 {
		e.Total.Add(1e9)
		e.Slowest = append(e.Slowest, observe.RequestSample{StartNS: start.Add(6*time.Second + time.Duration(i)*time.Second/10).UnixNano(), TotalNS: 1e9})
	}
	o.Endpoints = []observe.Endpoint{e}
	for _, c := range []struct {
		found  bool
		to     string
		config float64
	}{{true, "onset", 2}, {false, "end", 6}} {
		got := changes(cause.NewView(o), c.found)
		if len(got) != 3 || got[0].RelativeTo != c.to || *got[0].Before != c.config || got[2].At != nil || got[2].Before != nil {
			t.Errorf("%v: %+v", c.found, got)
		}
	}
	// What was slow from the beginning has no onset here.
	o.Endpoints[0].Slowest[0].StartNS = start.UnixNano()
	if got := changes(cause.NewView(o), true); got[0].RelativeTo != "end" {
		t.Errorf("%+v", got[0])
	}
}

// TestChangesOfOtherNamespaces: with a filter, what was changed of a service in another
// network namespace is left out; what is of the host stays.
func TestChangesOfOtherNamespaces(t *testing.T) {
	o := &observe.Observation{Filter: observe.Filter{Port: 80}, Processes: []observe.Process{{PID: 1, NetNS: 7}, {PID: 2, NetNS: 8}},
		Changes: []observe.Change{{What: "here", PID: 1}, {What: "there", PID: 2}, {What: "host"}, {What: "ended", PID: 3}}}
	v := cause.NewView(o)
	v.Services = []*cause.Service{{NS: &observe.NetNS{Inode: 7}}}
	var got []string
	for _, c := range changes(v, false) {
		got = append(got, c.What)
	}
	if want := []string{"here", "host", "ended"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if v.Filter = (observe.Filter{}); len(changes(v, false)) != 4 {
		t.Error("something is left out of a report of the whole host")
	}
}
