package simulate_test

import (
	"testing"

	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/simulate"
)

func TestDebug(t *testing.T) {
	f := simulate.New(simulate.Options{Hosts: 40, Endpoints: 10, Seed: 5})
	m := anomaly.New(anomaly.Options{})
	at := int64(1_790_000_000)
	for i := range 7200 {
		f.Second(at, m.Add)
		j := m.Judge(at)
		if len(j.Anomalies) > 0 {
			t.Log(i, j.Anomalies[0])
		}
		at++
		if i == 600 || i == 7199 {
			m.Debug()
		}
	}
}
