package anomaly

import (
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// A service of very many requests of which some have always failed is no anomaly, however
// little is known of it yet.
func TestWhatHasAlwaysFailedIsUsual(t *testing.T) {
	m := New(Options{})
	for at := int64(0); at < 300; at++ {
		p := fleet.Point{
			Key:     fleet.Key{Host: "web-1", Service: "nginx:80", Side: observe.Served, Addr: "0.0.0.0", Port: 80},
			Seconds: 1, At: at, Requests: 20_000, Errors: 400 + uint64(at%7), TotalUS: 20_000 * 3000, P50US: 2500, P99US: 9000,
		}
		p.PartsUS[observe.Server] = p.TotalUS
		m.Add(&p)
		if j := m.Judge(at); len(j.Anomalies) > 0 {
			t.Fatalf("second %d: %+v", at, j.Anomalies[0])
		}
	}
}
