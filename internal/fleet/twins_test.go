package fleet

import (
	"testing"
	"time"
)

func TestLatest(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	seen := func(name, id string, ago time.Duration, addresses ...string) HostSeen {
		return HostSeen{Host: Host{Name: name, ID: id, Addresses: addresses}, Last: now.Add(-ago)}
	}
	got := Latest([]HostSeen{
		seen("localhost", "1", 0, "10.0.0.1", "fd00::1"),
		seen("localhost", "2", 30*time.Second, "10.0.0.2"),
		seen("localhost", "3", 40*time.Second, "10.0.0.3"),
		seen("past", "4", 50*time.Second, "10.0.0.4", "10.1.0.4"),
		seen("past", "5", 55*time.Second, "10.1.0.4", "10.0.0.4"), // the same host sends its older history
		seen("anew", "6", time.Minute, "10.0.0.6"),
		seen("anew", "7", time.Hour, "10.0.0.7"), // it had another address then
	})
	want := []struct {
		name, id string
		twins    int
	}{{"localhost", "1", 2}, {"past", "4", 0}, {"anew", "6", 0}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if g := &got[i]; g.Name != w.name || g.ID != w.id || g.Twins != w.twins {
			t.Errorf("%s, history %s: %d twins; want %+v", g.Name, g.ID, g.Twins, w)
		}
	}
}
