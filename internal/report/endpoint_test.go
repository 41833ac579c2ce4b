package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/diagnose"
)

func f64(f float64) *float64 { return &f }
func i64(n int64) *int64     { return &n }

// requested is an endpoint with recorded requests.
func requested(side, addr string, port int, comm string, p50, p99 float64, shares map[string]float64) diagnose.Endpoint {
	e := diagnose.Endpoint{Side: side, Addr: addr, Port: port, Process: &diagnose.Process{PID: 1, Comm: comm},
		Requests: i64(95_000), RPS: f64(9500), GoodRPS: f64(9498.2),
		Total: &diagnose.QuantilesUS{P50: p50, P90: p50, P99: p99, Max: p99}, Ledger: map[string]diagnose.LedgerUS{}}
	for name, share := range shares {
		e.Ledger[name] = diagnose.LedgerUS{Mean: p50 * share, Share: &share}
	}
	return e
}

func chain() *diagnose.Report {
	r := &diagnose.Report{}
	web := requested("served", "10.9.8.1", 8088, "nginx", 103_200, 131_000, map[string]float64{"server": 0.92, "recv_wait": 0.05, "network": 0.05, "stall": 0.008})
	web.Slow = &diagnose.SlowRequests{Requests: 950, Mean: 412_000, Parts: map[string]float64{"retrans": 380_000, "server": 30_000}}
	web.Loss, web.Retrans, web.RTT, web.MinRTT = f64(9.77), i64(1435), f64(17_300), f64(200)
	web.Unfinished, web.Unanswered = 2, 14
	app := requested("served", "2001:db8::ffff:1234", 9000, "a-very-long-name-of-a-process", 999_700, 1e9, map[string]float64{"accept_wait": 0.52, "recv_wait": 0.4})
	idle := diagnose.Endpoint{Side: "served", Addr: "0.0.0.0", Port: 22}
	db := requested("called", "10.7.7.7", 3306, "php-fpm8.2", 2600, 4100, map[string]float64{"server": 0.96})
	r.Endpoints = []diagnose.Endpoint{web, app, idle, db}
	return r
}

const goldenRequests = `Services                process           req/s  good/s     p50     p99  time breakdown
  10.9.8.1:8088         nginx              9500    9498  103 ms  131 ms  server 92 %, network 5 %
    slowest 950: 412 ms, retrans 92 %, server 7 %; loss 9.77 ‰ (1,435 segments retransmitted); round
    trip 17.3 ms (min 200 µs); 14 without an answer; 2 unfinished
  [2001:db8::ffff:1234]:9000
                        a-very-long-na…    9500    9498     1 s 1,000 s  accept_wait 52 %
  0.0.0.0:22            ?                     -       -       -       -

Calls to other services caller            req/s  good/s     p50     p99  time breakdown
  10.7.7.7:3306         php-fpm8.2         9500    9498  2.6 ms  4.1 ms  server 96 %

`

func TestRequestsTable(t *testing.T) {
	var b bytes.Buffer
	p := &printer{Style: Style{Width: 100, All: true}, w: &b}
	p.endpoints(chain())
	if diff := cmp.Diff(goldenRequests, b.String()); diff != "" {
		t.Error(diff)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestHostileNamesInTheTable(t *testing.T) {
	r := chain()
	r.Endpoints[0].Process.Comm, r.Endpoints[0].Addr = "\x1b]0;x\x07\u202e", "\x1b[2J"
	r.Endpoints[0].Ledger["\x1b[1m"] = diagnose.LedgerUS{Share: f64(1)}
	var b bytes.Buffer
	if err := Text(&b, r, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range b.String() {
		if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
			t.Fatalf("control character %U in the report:\n%q", c, b.String())
		}
	}
}

// TestRowsOfOneNameAreToldApart: two services of a name and port stand in different places.
func TestRowsOfOneNameAreToldApart(t *testing.T) {
	one := requested("served", "127.0.0.1", 8080, "cart", 2000, 3000, nil)
	two, other := one, one
	process := *one.Process
	process.PID = 2
	two.Process, two.NetNS = &process, 4026532177
	other.Addr, other.Port = "10.9.8.1", 9090
	for _, c := range []struct {
		width int
		addr  string
		want  string
	}{{100, "127.0.0.1", "pid 2, network namespace 4026532177"}, {56, "127.0.0.1", "pid 2, network namespace 4026532177"}, {56, "10.9.8.7", "10.9.8.7:8080, pid 2, network namespace 4026532177"}} {
		two.Addr = c.addr
		var b bytes.Buffer
		p := &printer{Style: Style{Width: c.width}, w: &b}
		p.endpoints(&diagnose.Report{Endpoints: []diagnose.Endpoint{one, two, other}})
		got := strings.Join(strings.Fields(b.String()), " ")
		if !strings.Contains(got, c.want) || !strings.Contains(got, "pid 1") {
			t.Errorf("%d columns: no %q in\n%s", c.width, c.want, b.String())
		}
		b.Reset()
		idle := []diagnose.Endpoint{one, two, other}
		for i := range idle {
			idle[i].Total = nil
		}
		p.endpoints(&diagnose.Report{Endpoints: idle})
		if p.narrow() && !strings.Contains(strings.Join(strings.Fields(b.String()), " "), c.want) {
			t.Errorf("%d columns, no request recorded: no %q in\n%s", c.width, c.want, b.String())
		}
		if n := strings.Count(got, "pid"); n != 2 {
			t.Errorf("%d columns: %d rows say what differs, want the two of one name:\n%s", c.width, n, b.String())
		}
	}
}
