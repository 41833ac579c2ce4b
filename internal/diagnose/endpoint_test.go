package diagnose

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

const ms = int64(1e6)

// endpoint is one whose requests all have the same ledger.
func endpoint(side string, port, pid int, n uint64, parts map[string]int64, flags ...string) observe.Endpoint {
	e := observe.Endpoint{Side: side, NetNS: 7, Addr: "10.0.0.1", Port: port, PID: pid, PIDs: []int{pid},
		Requests: n, Recorded: n, OK: n - 1, Errors: 1, Segments: 3 * n, Connections: 4,
		Parts: map[string]observe.PartStats{}, SlowParts: map[string]int64{}, Flags: map[string]uint64{}, SlowCount: min(n, 10)}
	var total int64
	for name, ns := range parts {
		s := observe.PartStats{SumNS: ns * int64(n)}
		s.Hist.AddN(ns, n)
		e.Parts[name] = s
		e.SlowParts[name] = ns * int64(e.SlowCount)
		if name != "ack_delay" {
			total += ns
		}
	}
	e.Total.AddN(total, n)
	e.RTT.AddN(ms/2, n)
	e.MinRTT = ms / 5
	for _, f := range flags {
		e.Flags[f] = n
	}
	for range min(n, 20) {
		e.Slowest = append(e.Slowest, observe.RequestSample{TotalNS: total, Parts: parts, Flags: flags, RTTNS: ms / 2, MinRTTNS: ms / 5})
	}
	return e
}

// chain is nginx before an application before a database on another host.
func chain() *observe.Observation {
	return &observe.Observation{
		Window: observe.Window{Seconds: 10},
		Use:    observe.HostUse{CPU: observe.CPUTime{User: 4, Idle: 16}},
		Namespaces: []observe.NetNS{{Inode: 7, PID: 1, Addrs: []string{"10.0.0.1"}, Listeners: []observe.Listener{
			{Proto: "tcp", Addr: "0.0.0.0", Port: 80, PID: 10, PIDs: []int{10}, Comm: "nginx", Opened: 40, Clients: 8},
			{Proto: "tcp", Addr: "0.0.0.0", Port: 9000, PID: 20, PIDs: []int{20}, Comm: "app", Opened: 40, Clients: 8},
			{Proto: "tcp", Addr: "0.0.0.0", Port: 22, PID: 30, PIDs: []int{30}, Comm: "sshd", Opened: 1, Clients: 1}}}},
		Processes: []observe.Process{{PID: 10, PPID: 1, Comm: "nginx"}, {PID: 20, PPID: 1, Comm: "app"}, {PID: 30, PPID: 1, Comm: "sshd"}},
		Endpoints: []observe.Endpoint{
			endpoint("served", 80, 10, 300, map[string]int64{"server": 212 * ms, "network": ms, "ack_delay": 3 * ms}),
			endpoint("called", 9000, 10, 300, map[string]int64{"server": 210 * ms, "network": ms}),
			endpoint("served", 9000, 20, 300, map[string]int64{"server": 209 * ms, "network": ms}),
			func() observe.Endpoint {
				e := endpoint("called", 3306, 20, 300, map[string]int64{"server": 200 * ms, "network": ms})
				e.Addr = "10.0.0.2"
				return e
			}(),
		},
	}
}

func TestEndpointRows(t *testing.T) {
	r := judge(chain())
	type row struct {
		Side       string
		Addr       string
		Port       int
		Comm       string
		Requests   int64
		RPS, Good  float64
		P50        float64
		Opened     uint64
		Clients    int
		FromLedger bool
	}
	var got []row
	for _, e := range r.Endpoints {
		x := row{Side: e.Side, Addr: e.Addr, Port: e.Port, Requests: deref(e.Requests), Opened: e.Opened, Clients: e.Clients, FromLedger: e.Ledger != nil}
		if e.Process != nil {
			x.Comm = e.Process.Comm
		}
		if e.RPS != nil {
			x.RPS = *e.RPS
		}
		if e.GoodRPS != nil {
			x.Good = *e.GoodRPS
		}
		if e.Total != nil {
			x.P50 = math.Round(e.Total.P50 / 1e4)
		}
		got = append(got, x)
	}
	want := []row{
		{"served", "10.0.0.1", 80, "nginx", 300, 30, 29.9, 21, 40, 8, true},
		{"served", "10.0.0.1", 9000, "app", 300, 30, 29.9, 21, 40, 8, true},
		{"served", "0.0.0.0", 22, "sshd", 0, 0, 0, 0, 1, 1, false},
		{"called", "10.0.0.2", 3306, "app", 300, 30, 29.9, 20, 4, 0, true},
		{"called", "10.0.0.1", 9000, "nginx", 300, 30, 29.9, 21, 4, 0, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The means of the parts without ack_delay are the mean total.
	e := r.Endpoints[0]
	var sum float64
	for name, p := range e.Ledger {
		if name != "ack_delay" {
			sum += p.Mean
		} else if p.Share != nil {
			t.Error("ack_delay has a share of a total it is no part of")
		}
	}
	if sum != 213_000 || e.Slow == nil || e.Slow.Mean != 213_000 || e.Slow.Parts["server"] != 212_000 {
		t.Errorf("parts add up to %v µs; slow: %+v", sum, e.Slow)
	}
}

// TestCauseFoldsAtTheRightEnd: of findings on the requests of one chain, those
// that follow from another one are reported under it, and only where they do.
func TestCauseFoldsAtTheRightEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		inject func(*observe.Observation)
		want   []string
	}{
		{"the last hop is slow", func(*observe.Observation) {}, []string{"slow-dependency"}},
		{"loss on the way to the database", func(o *observe.Observation) {
			e := endpoint("called", 3306, 20, 300, map[string]int64{"server": 2 * ms, "retrans": 203 * ms}, "timeout")
			e.Addr, e.Retrans = "10.0.0.2", 300
			o.Endpoints[3] = e
		}, []string{"network-loss", "slow-dependency < network-loss", "rto-tail-loss < network-loss"}},
		{"loss on the way to the clients is none of the database's", func(o *observe.Observation) {
			e := endpoint("served", 80, 10, 300, map[string]int64{"server": 212 * ms, "retrans": 203 * ms})
			e.Retrans = 100
			o.Endpoints[0] = e
		}, []string{"slow-dependency", "network-loss", "rto-tail-loss < network-loss"}},
		{"the application reads late because it waits for the database", func(o *observe.Observation) {
			o.Endpoints[2] = endpoint("served", 9000, 20, 300, map[string]int64{"recv_wait": 900 * ms, "server": 209 * ms, "network": ms})
		}, []string{"slow-dependency", "application-slow-to-read < slow-dependency"}},
		{"a full queue makes the client send again", func(o *observe.Observation) {
			queued := func(side string, pid int, netns uint64, parts map[string]int64) observe.Endpoint {
				e := endpoint(side, 80, pid, 300, parts)
				e.NetNS = netns
				for i := range e.Slowest {
					e.Slowest[i].RTTNS, e.Slowest[i].MinRTTNS = 800*ms, ms
				}
				return e
			}
			client := queued("called", 99, 8, map[string]int64{"server": 300 * ms, "retrans": 500 * ms})
			client.Retrans = 100
			o.Endpoints = []observe.Endpoint{queued("served", 10, 7, map[string]int64{"server": ms, "network": 800 * ms}), client}
		}, []string{"high-rtt", "network-loss < high-rtt", "rto-tail-loss < high-rtt"}},
		{"a dependency on this host that stalls", func(o *observe.Observation) {
			o.Endpoints = o.Endpoints[:3]
			o.Endpoints[2] = endpoint("served", 9000, 20, 300, map[string]int64{"server": ms, "stall": 209 * ms})
		}, []string{"application-stall-mid-response", "slow-dependency < application-stall-mid-response"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := chain()
			c.inject(o)
			if diff := cmp.Diff(c.want, order(judge(o).Findings)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOrderOfEndpointsDoesNotMatter: the recorder lists endpoints in no order.
func TestOrderOfEndpointsDoesNotMatter(t *testing.T) {
	var want string
	for seed := range uint64(50) {
		o := chain()
		rand.New(rand.NewPCG(seed, 3)).Shuffle(len(o.Endpoints), func(i, j int) { o.Endpoints[i], o.Endpoints[j] = o.Endpoints[j], o.Endpoints[i] })
		text, err := json.Marshal(judge(o))
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = string(text)
		}
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// TestRedactedIsJudgedAlike: what is left out of a redacted observation takes
// no part in the judgement.
func TestRedactedIsJudgedAlike(t *testing.T) {
	o := chain()
	redacted, err := observe.Redact(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(order(judge(o).Findings), order(judge(redacted).Findings)); diff != "" {
		t.Error(diff)
	}
}

func TestReportOfRequestsMatchesItsSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../schema/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	r := judge(chain())
	if len(r.Findings) == 0 || r.Endpoints[0].Ledger == nil {
		t.Fatal("nothing to validate")
	}
	validate(t, schema, "chain", r)
	validate(t, schema, "hostile", judge(&observe.Observation{Endpoints: []observe.Endpoint{
		{Side: "served", Port: 0, Addr: "10.0.0.1"}, {Side: "x", Port: 70000, Addr: "10.0.0.1"}, {Side: "served", Port: 80, Addr: "nothing"},
		{Side: "called", Port: 80, Addr: "::1", Requests: 1 << 63, Retrans: 1 << 63, SlowCount: 1, SlowParts: map[string]int64{"server": -5},
			Parts: map[string]observe.PartStats{"server": {SumNS: -9}, "stall": {SumNS: math.MaxInt64}}, PID: -1},
		{Side: "served", Port: 80, Addr: "::1", Requests: 1 << 63, Unfinished: 1 << 63, OK: 1 << 63, MinRTT: -1},
	}}))
}

// TestOnlyInformation: what explains time that nobody here is to blame for is
// told, and the host is healthy.
func TestOnlyInformation(t *testing.T) {
	o := chain()
	o.Endpoints = []observe.Endpoint{endpoint("served", 80, 10, 300, map[string]int64{"server": 14 * ms, "network": ms, "ack_delay": 18 * ms})}
	r := judge(o)
	if len(r.Findings) != 0 {
		t.Fatalf("findings: %v", order(r.Findings))
	}
	for _, e := range r.RuledOut {
		if e.Cause == "slow-client-ack" && len(e.Because) > 60 {
			return
		}
	}
	t.Errorf("late acknowledgements are not told: %v", r.RuledOut)
}

// TestNotRecordedIsNotChecked: without records nothing is said of requests.
func TestNotRecordedIsNotChecked(t *testing.T) {
	o := chain()
	o.Endpoints = nil
	o.Gaps = []observe.Gap{{Kind: observe.KindRequests, Because: "needs CAP_BPF"}}
	told := map[string]string{}
	for _, e := range judge(o).NotChecked {
		told[e.Cause] = e.Because
	}
	for _, c := range cause.Catalogue() {
		if len(c.Needs) == 1 && c.Needs[0] == observe.KindRequests && told[string(c.ID)] != "needs CAP_BPF" {
			t.Errorf("%s: %q", c.ID, told[string(c.ID)])
		}
	}
}
