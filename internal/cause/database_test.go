package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// A finding about the network between a service and its database says what the
// database itself says of the time (incident E, case 7).
func TestNetworkFindingQuotesTheSlowLog(t *testing.T) {
	for _, c := range []struct {
		name string
		log  *observe.SlowLog
		want string
	}{
		{"entries of quick statements", slowLog("SELECT name FROM guests", 100, 213*ms, 3*ms, 210*ms, shopPID), "of the 213 ms that such a request took, the statement itself took 3 ms"},
		{"no entry", &observe.SlowLog{Source: "/slow.log", ThresholdNS: 10 * ms}, "no statement took longer than 10 ms in the server"},
	} {
		o := healthy()
		lossy := parts{observe.Server: 3 * ms, observe.Retrans: 210 * ms, observe.Network: ms}
		shop{d: but(mariadb("200"), func(d *observe.Database) { d.Slow = c.log }), n: 300, call: lossy, served: lossy, flags: observe.FlagTimeout}.inject(o)
		for i := range o.Endpoints {
			o.Endpoints[i].Segments, o.Endpoints[i].Retrans = 2000, 300
		}
		r := checkRTOTailLoss(NewView(o))
		if len(r.Findings) == 0 || !strings.Contains(evidence(&r.Findings[0]), c.want) {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// What a service suffers from its database is reported as the consequence.
func TestSlowDependencyFollowsTheDatabase(t *testing.T) {
	o := healthy()
	shop{d: but(mariadb("200"), func(d *observe.Database) {
		d.Slow = slowLog("SELECT ?", 500, 60*ms, 60*ms, ms, shopPID)
	}), n: 500, call: slowCall, served: slowServed}.inject(o)
	v := NewView(o)
	dependency, query := slowDependency.Judge(v), mariadbSlowQuery.Judge(v)
	if len(dependency.Findings) != 1 || len(query.Findings) != 1 {
		t.Fatalf("%+v\n%+v", dependency, query)
	}
	if f := &dependency.Findings[0]; f.MayFollow != nil && !f.MayFollow(&query.Findings[0]) {
		t.Errorf("the dependency of %+v does not follow from the statement at %+v", f.Subject, query.Findings[0].Subject)
	}
}

// A server that does not tell whether it refused anybody is not checked.
func TestUnknownRefusals(t *testing.T) {
	for name, d := range map[string]observe.Database{
		"a password is needed":  but(redisServer(nil, nil), func(d *observe.Database) { d.Status.Refused = "NOAUTH Authentication required." }),
		"started anew":          redisServer(map[string]float64{"rejected_connections": 905}, map[string]float64{"rejected_connections": 0}),
		"not asked":             but(redisServer(nil, nil), func(d *observe.Database) { d.Status = nil }),
		"its log is a journal":  but(mariadb("20"), func(d *observe.Database) { d.Logs = nil }),
		"a log without a right": but(mariadb("20"), func(d *observe.Database) { d.Logs[0].Problem = "no permission" }),
	} {
		c := &redisMaxClients
		if d.Kind == "mariadb" {
			c = &mariadbConnections
		}
		if r := check(c, shop{d: d, opened: 500}.inject); r.NotChecked == "" || len(r.Findings) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// PostgreSQL forks a process to refuse each connection.
func TestStormOfRefusals(t *testing.T) {
	o := healthy()
	shop{d: postgres(func(d *observe.Database) { d.Log = []observe.LogKind{{Kind: "too-many-clients", Count: 3000}} }), n: 500, call: slowCall, served: slowServed}.inject(o)
	if !NewView(o).forksToRefuse(dbPID) {
		t.Error("not found")
	}
	if NewView(o).forksToRefuse(fpmMaster) {
		t.Error("another process")
	}
}

// Of requests whose process was not found, or had ended by the time processes were looked
// at, nobody is named.
func TestUnknownHolders(t *testing.T) {
	for _, pid := range []int{0, 4321} {
		o := healthy()
		shop{d: observe.Database{Kind: "memcached", MaxConnections: observe.Setting{Value: "100"}, ConnectionsPeak: 100,
			Status: &observe.DatabaseStatus{Begin: map[string]float64{"rejected_connections": 0}, End: map[string]float64{"rejected_connections": 90}}}, opened: 100}.inject(o)
		calls := callsTo(dbPort, "10.9.8.1", pid, "").add(90, ms/10, ms/20, 0, quickCall).endpoint()
		calls.PIDs = []int{pid}
		o.Endpoints = append(o.Endpoints, calls)
		r := memcachedConnections.Judge(NewView(o))
		if len(r.Findings) != 1 || !strings.Contains(evidence(&r.Findings[0]), "connected from this host=nginx (pid 100);") {
			t.Errorf("pid %d: %+v", pid, r)
		}
	}
}
