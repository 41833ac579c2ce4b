package anomaly

import (
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// TestWhatLiesBetweenCarriesTheEffect: a database that tells nothing of itself hurts all
// calls to it; that of one application has too few requests to be abnormal, but the
// application is.
func TestWhatLiesBetweenCarriesTheEffect(t *testing.T) {
	hosts, all := shop()
	all = all[1:] // without db-1
	failing := func(k fleet.Key, _, _ float64) Anomaly {
		return Anomaly{Key: k, Signal: Errors, Part: Total, Effect: 0.1, Alarm: true, failed: 0.1}
	}
	for _, c := range []struct {
		name string
		call func(k fleet.Key, added, own float64) Anomaly
		app  func(k fleet.Key, added, own float64) Anomaly
		own  float64 // of the 10 ms that are added to the application's requests, µs
		want int
	}{
		{"it waits for the database", slowly, slowly, 100, 1},
		{"it is slow by itself", slowly, slowly, 10_000, 2},
		{"both fail", failing, failing, 0, 1},
		{"it fails, and the database is slow", slowly, failing, 0, 2},
	} {
		var list []Anomaly
		for _, k := range all {
			switch {
			case k.Host == "app-05" && k.Side == observe.Served:
				list = append(list, c.app(k, 10_000, c.own))
			case k.Side == observe.Called && k.Addr == "10.0.7.1" && k.Host != "app-05":
				list = append(list, c.call(k, 20_000, 0))
			}
		}
		if x := Explain(list, all, Facts{Hosts: hosts}); len(x.Shared) != c.want || len(x.Alone) != 0 {
			t.Errorf("%s: explained by %d: %s", c.name, len(x.Shared), x.Text)
		}
	}
}
