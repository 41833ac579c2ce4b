package compare

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

// web is nginx for ten seconds: so many requests a second that take so long in
// the server, and a backlog.
func web(seed uint64, rate int, server time.Duration, backlog uint32) *observe.Observation {
	rnd := rand.New(rand.NewPCG(seed, 1))
	e := observe.Endpoint{Side: "served", NetNS: seed, Addr: "10.0.0.1", Port: 80, PID: int(seed), Comm: "nginx", Parts: map[string]observe.PartStats{}}
	for range 100 {
		n := rate/10 + rnd.IntN(rate/50+1)
		e.Arrivals = append(e.Arrivals, uint32(n))
		e.Requests += uint64(n)
	}
	network := 100 * time.Microsecond
	e.OK = e.Requests
	e.Total.AddN(int64(server+network), e.Requests)
	e.Parts["server"] = observe.PartStats{SumNS: int64(e.Requests) * int64(server)}
	e.Parts["network"] = observe.PartStats{SumNS: int64(e.Requests) * int64(network)}
	o := &observe.Observation{
		Schema: observe.SchemaObservation, Host: observe.Host{Name: "web1", Kernel: "6.18.0", CPUs: 2},
		Window:    observe.Window{Start: time.Date(2026, 11, 22, 6, 0, int(seed), 0, time.UTC), Seconds: 10},
		Endpoints: []observe.Endpoint{e},
		Namespaces: []observe.NetNS{{
			Inode: seed, Counters: map[string]uint64{"TcpExt.DelayedACKs": 10 * seed * seed * seed, "Tcp.OutSegs": uint64(10 * rate)},
			Sysctl:    map[string]string{"net.core.somaxconn": itoa(int(backlog))},
			Listeners: []observe.Listener{{Proto: "tcp", Port: 80, PID: int(seed), Comm: "nginx", Limit: backlog, Opened: 10}},
		}},
		Processes: []observe.Process{{PID: int(seed), Comm: "nginx", FDLimit: 1024}},
	}
	for i := range 10 {
		o.Use.Course = append(o.Use.Course, observe.CPUSpan{Seconds: float64(i + 1), Busy: 0.5 + 0.05*rnd.Float64(), Idle: 0.5})
	}
	o.Use.CPU = observe.CPUTime{User: 9, System: 1, Idle: 10}
	return o
}

// How many files are open stands among the sysctls, and is no setting.
func TestCountsAreNoSettings(t *testing.T) {
	o := &observe.Observation{Sysctl: map[string]string{"fs.file-nr": "1200\t0\t100000", "fs.file-max": "100000"}}
	if all := set(o); len(all) != 1 || all[place{"host", "fs.file-max"}] != "100000" {
		t.Errorf("set is %v", all)
	}
}

func TestCompare(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("", 5*3600+45*60)
	t.Cleanup(func() { time.Local = local })
	a, b := web(2, 1000, 10*time.Millisecond, 10), web(3, 2000, 2*time.Millisecond, 511)
	d := Compare(t.Context(), a, b)
	if !d.Differs() {
		t.Error("they do not differ")
	}
	var text strings.Builder
	if err := d.Text(&text); err != nil {
		t.Fatal(err)
	}
	const want = `A  web1, Linux 6.18.0, 2026-11-22 11:45:02 +05:45 for 10 s
B  web1, Linux 6.18.0, 2026-11-22 11:45:03 +05:45 for 10 s

Findings: none in both

served :80 nginx
                         A        B
  requests         1,096/s  2,203/s  × 2.01 beyond the spread
  errors               0 %      0 %
  p50              10.1 ms   2.1 ms  × 0.208
  p99              10.1 ms   2.1 ms  × 0.208
    server, mean     10 ms     2 ms  × 0.2
    network, mean   100 µs   100 µs
  what moved: server, 8 ms shorter per request

Counters that changed much
                            A        B
  TcpExt.DelayedACKs      8/s     27/s  × 3.38
  Tcp.OutSegs         1,000/s  2,000/s  × 2

Settings that differ
                                             A    B
  :80                   backlog             10  511
  the namespace of :80  net.core.somaxconn  10  511

Call stacks are not saved with an observation. For a differential flame graph record two windows (slowray flame -o before.pb.gz) and give the first to the second: slowray flame --diff before.pb.gz -o diff.svg
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../../schema/compare.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var b1 bytes.Buffer
	if err := d.JSON(&b1); err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b1.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Error(err)
	}
}

// TestAlike compares windows of the same service: nothing is beyond the spread.
func TestAlike(t *testing.T) {
	differ := 0
	const times = 200
	for seed := range uint64(times) {
		if d := Compare(t.Context(), web(2*seed+2, 1000, time.Millisecond, 10), web(2*seed+3, 1000, time.Millisecond, 10)); d.Differs() {
			differ++
		}
	}
	if differ > times/100 {
		t.Errorf("%d of %d pairs of the same differ", differ, times)
	}
	if d := Compare(t.Context(), &observe.Observation{}, &observe.Observation{}); d.Differs() {
		t.Errorf("nothing differs from nothing: %+v", d)
	}
}

// TestFindings matches findings by cause and what they are about.
func TestFindings(t *testing.T) {
	of := func(list ...cause.Finding) *diagnose.Report { return &diagnose.Report{Findings: list} }
	one := func(id string, port int, share float64) cause.Finding {
		return cause.Finding{Cause: cause.ID(id), Title: id, Subject: cause.Subject{Port: port}, Impact: cause.Impact{Share: share, Of: "requests"}}
	}
	got := findings(
		of(one("a", 80, 0.9), one("b", 80, 0.5), one("c", 0, 0.2), one("d", 80, 0.3)),
		of(one("a", 80, 0.1), one("b", 81, 0.5), one("c", 0, 0.9), one("d", 80, 0.32)),
	)
	want := map[string]Change{"a:80": Weaker, "b:80": Gone, "b:81": New, "c": Stronger, "d:80": Alike}
	if len(got) != len(want) || got[0].Change != New {
		t.Errorf("%+v", got)
	}
	for path, own := range map[string]string{"/proc/12/root/etc/nginx.conf:3": "/etc/nginx.conf:3", "/etc/x": "/etc/x", "/proc/sys/x": "/proc/sys/x"} {
		if got := on(&cause.Subject{Path: path}); got != own {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, f := range got {
		if want[f.Cause+f.On] != f.Change {
			t.Errorf("%s%s: %s, want %s", f.Cause, f.On, f.Change, want[f.Cause+f.On])
		}
	}
}
