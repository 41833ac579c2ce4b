package anomaly

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// shop is 40 application hosts of which most call the database db-1, the others db-2.
func shop() (hosts []fleet.Host, all []fleet.Key) {
	for i := range 2 {
		name := fmt.Sprintf("db-%d", i+1)
		hosts = append(hosts, fleet.Host{Name: name, Addresses: []string{fmt.Sprintf("10.0.7.%d", i+1)}})
		all = append(all, fleet.Key{Host: name, Service: "mariadb:3306", Side: observe.Served, Addr: "0.0.0.0", Port: 3306})
	}
	for i := range 40 {
		name := fmt.Sprintf("app-%02d", i)
		hosts = append(hosts, fleet.Host{Name: name, Addresses: []string{fmt.Sprintf("10.0.1.%d", i)}, Labels: map[string]string{"rack": fmt.Sprint(i / 10)}})
		db := 1 + i/30
		all = append(all, fleet.Key{Host: name, Service: "app:8080", Side: observe.Served, Addr: "0.0.0.0", Port: 8080},
			fleet.Key{Host: name, Service: "app", Side: observe.Called, Addr: fmt.Sprintf("10.0.7.%d", db), Port: 3306})
	}
	return hosts, all
}

func slowly(k fleet.Key, added, own float64) Anomaly {
	return Anomaly{Key: k, Signal: Total, Part: SplitSignal(observe.ServerDisk), AddedUS: added, OwnUS: own, Effect: 1, Alarm: true}
}

func TestASlowDatabaseExplainsItsCallers(t *testing.T) {
	hosts, all := shop()
	var list []Anomaly
	for _, k := range all {
		switch {
		case k.Host == "db-1":
			list = append(list, slowly(k, 20_000, 20_000))
		case k.Side == observe.Called && k.Addr == "10.0.7.1":
			list = append(list, slowly(k, 20_000, 0))
		case k.Service == "app:8080" && k.Host < "app-30":
			list = append(list, slowly(k, 25_000, 100))
		}
	}
	x := Explain(list, all, Facts{Hosts: hosts})
	if len(x.Shared) != 1 || len(x.Alone) != 0 {
		t.Fatalf("explained as %s", x.Text)
	}
	s := x.Shared[0]
	if s.Component != (Component{Dependency, "10.0.7.1:3306"}) || s.Origin == nil || s.Origin.Host != "db-1" || len(s.Explains) != len(list) {
		t.Errorf("explained as %+v", s)
	}
	if want := "30 of 30 slow services call 10.0.7.1:3306 (mariadb:3306 on db-1); of the others 0 of 11."; x.Text != want {
		t.Errorf("text %q, want %q", x.Text, want)
	}
	if !slices.Contains(s.Also, Component{Host, "db-1"}) {
		t.Errorf("also %v", s.Also)
	}
}

func TestARackExplainsWhatIsSlowInIt(t *testing.T) {
	hosts, all := shop()
	var list []Anomaly
	for _, k := range all {
		if k.Service == "app:8080" && strings.HasPrefix(k.Host, "app-1") {
			list = append(list, slowly(k, 9_000, 9_000))
		}
	}
	x := Explain(list, all, Facts{Hosts: hosts})
	if len(x.Shared) != 1 || x.Shared[0].Component != (Component{Label, "rack=1"}) || x.Shared[0].Inside != 10 || x.Shared[0].Outside != 0 || x.Shared[0].P > 1e-6 {
		t.Errorf("explained as %+v", x)
	}
}

func TestScatteredAnomaliesShareNoPlace(t *testing.T) {
	hosts, all := shop()
	var list []Anomaly
	for i, k := range all {
		if k.Service == "app:8080" && i%8 == 2 {
			list = append(list, slowly(k, 9_000, 9_000))
		}
	}
	for _, s := range Explain(list, all, Facts{Hosts: hosts}).Shared {
		// That all of them are of one service is true.
		if len(s.Members) > 1 && s.Kind != Service || s.And != nil {
			t.Errorf("%d share %v", len(s.Members), s.Component)
		}
	}
	if x := Explain(nil, all, Facts{Hosts: hosts}); len(x.Shared) != 0 || x.Text == "" {
		t.Errorf("of nothing: %+v", x)
	}
}

func TestTheNetworkOfClientsIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var list []ClientRequest
	for range 2000 {
		net := byte(rng.IntN(20))
		bad := rng.Float64() < 0.003 || net == 7 && rng.Float64() < 0.2
		list = append(list, ClientRequest{Client: netip.AddrFrom4([4]byte{10, 3, net, byte(rng.IntN(250))}), Bad: bad, Weight: 1})
	}
	if s, ok := ClientNetwork(list); !ok || s.Component != (Component{Clients, "10.3.7.0/24"}) {
		t.Errorf("found %+v, %v", s, ok)
	}
	for i := range list {
		list[i].Bad = i%50 == 0
	}
	if s, ok := ClientNetwork(list); ok {
		t.Errorf("found %+v where all are alike", s)
	}
}

func TestAModelIsSavedAndLoaded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := New(Options{})
	at := int64(1_700_000_000)
	for range 600 {
		plain(rng, at, 20, nil, m.Add)
		m.Judge(at)
		at++
	}
	var b bytes.Buffer
	if err := m.Save(&b); err != nil {
		t.Fatal(err)
	}
	again, err := Load(bytes.NewReader(b.Bytes()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := range 25 {
		plain(rng, at, 20, func(h int, p *fleet.Point) {
			if h == 2 && i >= 15 {
				blocked(p, 30_000)
			}
		}, again.Add)
		j := again.Judge(at)
		at++
		switch {
		case i < 15 && len(j.Anomalies) > 0:
			t.Fatalf("false alarm: %+v", j.Anomalies)
		case len(j.Anomalies) > 0:
			found++
		}
	}
	if found == 0 {
		t.Error("what was learned is lost")
	}
	for _, data := range [][]byte{nil, []byte("nonsense"), b.Bytes()[:b.Len()/2]} {
		if _, err := Load(bytes.NewReader(data), Options{}); err == nil {
			t.Errorf("%d bytes are no error", len(data))
		}
	}
}

func TestTheWorstPiecesOfAWindowAreLeftOut(t *testing.T) {
	var w window
	for i := range 5 {
		s := sums{seconds: 1, n: 100}
		s.v[Total] = 100 * 1000
		if i == 1 || i == 3 {
			s.v[Total] *= 50 // a pause
		}
		w.push(&s)
	}
	if v, n, ok := w.trimmed(Total); !ok || v/n != 1000 {
		t.Errorf("mean %v, %v", v/n, ok)
	}
}

func TestADayIsLearned(t *testing.T) {
	var s season
	for d := range int64(3) {
		for second := int64(0); second < daySeconds; second += 100 {
			y := 1.0
			if second >= 12*3600 && second < 13*3600 {
				y = 2
			}
			s.see(d*daySeconds+second, y, 1)
		}
		s.end(d)
	}
	noon, _, _ := s.expected(3*daySeconds + 12*3600 + 1800)
	night, _, _ := s.expected(3*daySeconds + 3*3600)
	if d := noon - night; d < 0.99 || d > 1.01 {
		t.Errorf("noon is %v above the night", d)
	}
	// Before the peak begins it may be as bad as the peak.
	if mean, worse, _ := s.expected(3*daySeconds + 12*3600 - 200); worse < 0.5 || mean > night+0.5 {
		t.Errorf("before noon %v, may be %v worse", mean, worse)
	}
}

// An endpoint that fails by itself and waits for a slow database has two causes, and one
// that is slow and fails by itself has one.
func TestSlowAndFailingAtOnce(t *testing.T) {
	hosts, all := shop()
	both := func(k fleet.Key, added, own float64) Anomaly {
		a := slowly(k, added, own)
		a.failed = 0.3
		a.views[slower] = view{Wrong: Wrong{Signal: Total, Effect: 1}, in: true, joined: true}
		a.views[failing] = view{Wrong: Wrong{Signal: Errors, Value: 0.3, Effect: 0.3}, in: true, joined: true}
		return a
	}
	plain := func(k fleet.Key, added, own float64) Anomaly {
		a := slowly(k, added, own)
		a.views[slower] = view{Wrong: Wrong{Signal: Total, Effect: 1}, in: true, joined: true}
		return a
	}
	var list []Anomaly
	for _, k := range all {
		switch {
		case k.Host == "db-1":
			list = append(list, plain(k, 20_000, 20_000))
		case k.Side == observe.Called && k.Addr == "10.0.7.1":
			list = append(list, plain(k, 20_000, 0))
		case k.Service == "app:8080" && k.Host < "app-10":
			list = append(list, both(k, 25_000, 100))
		case k.Service == "app:8080" && k.Host < "app-30":
			list = append(list, plain(k, 25_000, 100))
		}
	}
	x := Explain(list, all, Facts{Hosts: hosts})
	want := "30 of 30 slow services call 10.0.7.1:3306 (mariadb:3306 on db-1); of the others 0 of 11. 10 of 10 failing endpoints have the label rack=0; of the others 0 of 32."
	if x.Text != want {
		t.Errorf("two causes: %q, want %q", x.Text, want)
	}
	list = list[:0]
	for _, k := range all {
		if k.Service == "app:8080" && k.Host < "app-10" {
			list = append(list, both(k, 25_000, 25_000))
		}
	}
	x = Explain(list, all, Facts{Hosts: hosts})
	if want := "10 of 10 slow and failing endpoints have the label rack=0; of the others 0 of 32."; x.Text != want {
		t.Errorf("one cause: %q, want %q", x.Text, want)
	}
	a := &list[0]
	a.tellBesides()
	if len(a.Besides) != 1 || a.Besides[0].Signal != Errors {
		t.Errorf("besides it is %+v", a.Besides)
	}
}

// A service that waits for a slow database, and is slow by itself too, is a cause next to it.
func TestSlowByItselfAndByWhatItWaitsFor(t *testing.T) {
	hosts, all := shop()
	var list []Anomaly
	for _, k := range all {
		switch {
		case k.Host == "db-1":
			list = append(list, slowly(k, 20_000, 20_000))
		case k.Side == observe.Called && k.Addr == "10.0.7.1":
			list = append(list, slowly(k, 20_000, 0))
		case k.Service == "app:8080" && k.Host < "app-30":
			a := slowly(k, 25_000, 5_000)
			a.own = k.Host < "app-10"
			list = append(list, a)
		}
	}
	x := Explain(list, all, Facts{Hosts: hosts})
	if len(x.Shared) != 2 || x.Shared[0].Component != (Component{Dependency, "10.0.7.1:3306"}) || x.Shared[1].Component != (Component{Label, "rack=0"}) {
		t.Errorf("explained as %s", x.Text)
	}
}
