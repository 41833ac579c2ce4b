package stalltest

import (
	"testing"
	"time"
)

func TestBetween(t *testing.T) {
	m := Start(t)
	from := time.Now()
	time.Sleep(300 * time.Millisecond)
	to := time.Now()
	away, slowest := m.Between(from, to)
	if took := to.Sub(from); away > took || slowest <= 0 {
		t.Errorf("of %s away for %s, the slowest write took %s", took, away, slowest)
	}
	t.Logf("away for %s, slowest write %s", away, slowest)

	// What was under way counts, of stalls the part in between.
	at := func(ms int) time.Time { return from.Add(time.Duration(ms) * time.Millisecond) }
	known := func(list ...span) track { return track{until: at(1000), long: list} }
	one, two := known(span{at(0), at(30)}, span{at(90), at(150)}, span{at(200), at(900)}), known(span{at(50), at(60)})
	m = &Meter{known(span{at(0), at(40)}, span{at(90), at(150)}, span{at(200), at(900)}), []*track{&two, &one}}
	if away, slowest := m.Between(at(20), at(100)); away != 20*time.Millisecond || slowest != 60*time.Millisecond {
		t.Errorf("away for %s, the slowest write took %s", away, slowest)
	}
}
