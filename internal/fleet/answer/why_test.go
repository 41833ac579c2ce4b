package answer

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/store"
)

// valid fails when the report's JSON is not by its schema, or its text could drive a
// terminal.
func valid(t *testing.T, r *Report) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../../schema/fleet.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Error(err)
	}
	for what, text := range map[string]string{"JSON": b.String(), "text": textOf(t, r)} {
		for _, c := range text {
			if c != '\n' && (unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp)) {
				t.Errorf("%s: character %U", what, c)
				break
			}
		}
	}
}

// one is the only cause of a report.
func one(t *testing.T, r *Report) *Cause {
	t.Helper()
	valid(t, r)
	if len(r.Causes) != 1 {
		t.Fatalf("%d causes, want one:\n%s", len(r.Causes), textOf(t, r))
	}
	return &r.Causes[0]
}

var onDisk = cause.Subject{Kind: "disk", Comm: "mariadbd", PID: 812, Path: "/dev/vdb"}

func TestSlowDatabaseIsNamed(t *testing.T) {
	w := newWorld(8)
	w.db = step(1200, 45*time.Millisecond)
	w.skew["web-1"] = 30 * time.Millisecond
	w.run(1500)
	w.find("db-7", "fsync-bound", "Requests wait for fsync.", onDisk, 0.93, 1200)
	w.find("db-7", "fsync-bound", "Requests wait for fsync.", onDisk, 0.95, 1260)
	w.find("db-7", "many-threads", "Many threads.", cause.Subject{Kind: "process", Comm: "backup"}, 0.99, 600) // there before, and another's
	w.find("db-7", "many-threads", "Many threads.", cause.Subject{Kind: "process", Comm: "backup"}, 0.99, 1260)
	w.find("web-3", "time-wait", "TIME_WAIT.", cause.Subject{Kind: "namespace"}, 0.1, 1230)
	r := w.why(t, 900, 1500)
	c := one(t, r)
	o := c.Origin
	if o == nil || o.Host != "db-7" || o.Service != "mariadbd:3306" || o.PID != 812 || o.Comm != "mariadbd" || o.Part != "server.blocked.disk" {
		t.Errorf("origin %+v", o)
	}
	if !strings.HasPrefix(textOf(t, r), "PROBLEM  mariadbd:3306 on db-7: Requests wait for fsync\n") || !slices.Equal(shell.Strings(c.Next), []string{"ssh db-7 sudo slowray why --port 3306"}) {
		t.Errorf("%s\nnext: %q", textOf(t, r), c.Next)
	}
	for _, want := range []string{"8 of 8", "10.0.0.7:3306", "on db-7: fsync-bound", "mariadbd (pid 812)", "/dev/vdb"} {
		if !strings.Contains(c.Text, want) {
			t.Errorf("%q lacks %q", c.Text, want)
		}
	}
	if len(c.Findings) != 1 || c.Findings[0].Finding.Cause != "fsync-bound" || c.Findings[0].Windows != 2 || c.Findings[0].Finding.Impact.Share != 0.95 || c.Findings[0].Before {
		t.Errorf("findings of the cause %+v", c.Findings)
	}
	if at := c.Since.Unix() - began; at < 1198 || at > 1206 || c.Until != nil {
		t.Errorf("since %d until %v, it began at 1200 and lasts", at, c.Until)
	}
	if len(c.Affected) != 17 || len(c.Chain) != 3 || c.Chain[0].Service != "app:8080" || c.Chain[2].Host != "db-7" {
		t.Errorf("%d affected, chain %+v", len(c.Affected), c.Chain)
	}
	var ruledOut []string
	for _, u := range c.RuledOut {
		ruledOut = append(ruledOut, u.What)
	}
	for _, want := range []string{"more load on mariadbd:3306 on db-7", "the network to mariadbd:3306 on db-7", "one rack"} {
		if !slices.Contains(ruledOut, want) {
			t.Errorf("ruled out %q, not %q", ruledOut, want)
		}
	}
	if len(r.Findings) != 2 || len(r.Alone) != 0 || len(r.Abnormal) != 17 {
		t.Errorf("%d other findings, %d alone, %d abnormal", len(r.Findings), len(r.Alone), len(r.Abnormal))
	}
	// The same again, and narrowed.
	var first, second bytes.Buffer
	if r.JSON(&first) != nil || w.why(t, 900, 1500).JSON(&second) != nil || first.String() != second.String() {
		t.Error("the same question has another answer")
	}
	r = w.why(t, 900, 1500, func(q *Question) { q.Service, q.Host = "app", "web-4" })
	if c := one(t, r); c.Origin.Host != "db-7" || c.Chain[0].Host != "web-4" || len(r.Abnormal) != 2 {
		t.Errorf("of web-4: %+v", c.Chain)
	}
	r = w.why(t, 900, 1500, func(q *Question) { q.Service = "redis:6379" })
	if valid(t, r); len(r.Causes)+len(r.Abnormal) != 0 || !strings.Contains(textOf(t, r), "Nothing of it is abnormal") {
		t.Errorf("of redis:\n%s", textOf(t, r))
	}
}

// TestBeforeHasNothingOfTheFault: a request counts where it began, and the first that met it did so
// before it was found.
func TestBeforeHasNothingOfTheFault(t *testing.T) {
	w := newWorld(8)
	w.db = step(170, 45*time.Millisecond)
	w.run(260)
	w.second("db-7", observe.Served, "mariadbd", "10.0.0.7", 3306, 168, 1, spans{server: 20 * time.Second})
	c := one(t, w.why(t, 0, 260))
	i := slices.IndexFunc(c.Evidence, func(f Fact) bool { return f.Fact == "mean request latency" })
	if i < 0 || c.Evidence[i].Usual == nil || *c.Evidence[i].Usual > 2200 || *c.Evidence[i].Usual < 2000 {
		t.Errorf("since %d s: %+v, want 2.1 ms before", c.Since.Unix()-began, c.Evidence[max(i, 0)])
	}
}

func TestUnknownNames(t *testing.T) {
	w := newWorld(2)
	w.run(300)
	_, err := Why(context.Background(), w, Question{From: moment(0), To: moment(300), Host: "web\x1b-9"})
	if err == nil || !strings.Contains(err.Error(), "no host is called") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a host that is none: %v", err)
	}
	r := w.why(t, 0, 300, func(q *Question) { q.Service = "postgres" })
	if text := textOf(t, r); strings.Contains(text, "Nothing of it is abnormal") || !strings.Contains(text, "the service postgres: nobody was seen") {
		t.Errorf("a service that is none:\n%s", text)
	}
}

// TestItIsOver: what began before the range and ended in it.
func TestItIsOver(t *testing.T) {
	w := newWorld(6)
	w.db = func(_ string, s int64) time.Duration {
		if s >= 1100 && s < 1300 {
			return 30 * time.Millisecond
		}
		return 0
	}
	w.run(1700)
	c := one(t, w.why(t, 1200, 1560))
	if at := c.Since.Unix() - began; at < 1098 || at > 1106 || c.Until == nil || c.Until.Unix()-began < 1300 || c.Until.Unix()-began > 1500 {
		t.Errorf("since %d until %v, it was from 1100 to 1300", at, c.Until)
	}
	r := w.why(t, 1620, 1700)
	if valid(t, r); len(r.Abnormal) != 0 {
		t.Errorf("minutes after it is over:\n%s", textOf(t, r))
	}
}

// TestSlowWay: packets to one of the web hosts take longer. Neither of the two ends alone
// can say so.
func TestSlowWay(t *testing.T) {
	w := newWorld(8)
	w.wire = func(host string, s int64) time.Duration {
		if host == "web-2" && s >= 1000 {
			return 20 * time.Millisecond
		}
		return 0
	}
	w.run(1300)
	r := w.why(t, 700, 1300)
	valid(t, r)
	text := textOf(t, r)
	if len(r.Causes) == 0 || !strings.Contains(text, "web-2") || slices.ContainsFunc(r.Abnormal, func(e Endpoint) bool { return e.Host == "db-7" }) {
		t.Fatalf("it is web-2's way:\n%s", text)
	}
	wire := 0.0
	for _, f := range r.Causes[0].Evidence {
		if strings.HasPrefix(f.Fact, "share of it on the wire") {
			wire = f.Value
		}
	}
	if wire < 0.8 {
		t.Errorf("the wire has %.2f of the time:\n%s", wire, text)
	}
}

func TestOneSlowHost(t *testing.T) {
	w := newWorld(6)
	w.web = func(host string, s int64) time.Duration {
		if host == "web-5" && s >= 1000 {
			return 40 * time.Millisecond
		}
		return 0
	}
	w.run(1300)
	w.find("web-5", "cpu-quota-throttled", "The CPU quota is used up.", cause.Subject{Kind: "cgroup", Comm: "app", Path: "/app"}, 0.8, 1020)
	c := one(t, w.why(t, 700, 1300))
	if c.Origin == nil || c.Origin.Host != "web-5" || c.Origin.Service != "app:8080" || !strings.Contains(c.Text, "cpu-quota-throttled") {
		t.Errorf("%+v %s", c.Origin, c.Text)
	}
}

// TestBadConfiguration: a third of the hosts have another version of it.
func TestBadConfiguration(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	w := newWorld(30)
	w.label = func(i int) map[string]string {
		return map[string]string{"rack": fmt.Sprint("r", i%5), "config": fmt.Sprint(6 + i%3/2)}
	}
	w.web = func(host string, s int64) time.Duration {
		var n int
		if _, err := fmt.Sscanf(host, "web-%d", &n); err == nil && n%3 == 2 && s >= 1000 {
			return 40 * time.Millisecond
		}
		return 0
	}
	w.run(1200)
	for i := range 30 {
		if i%3 == 2 && i != 5 {
			w.find(w.webName(i), "worker-pool-exhausted", "All workers are busy.", cause.Subject{Kind: "pool", Comm: "app", Port: 8080}, 0.5, 1020)
		}
		if i%2 == 0 {
			w.find(w.webName(i), "time-wait", "TIME_WAIT.", cause.Subject{Kind: "namespace"}, 0.1, 1020)
		}
	}
	r := w.why(t, 600, 1200)
	c := one(t, r)
	label := anomaly.Component{Kind: anomaly.Label, Value: "config=7"}
	if c.Component != label && (c.And == nil || *c.And != label) || c.Inside != 10 || c.Origin != nil {
		t.Fatalf("%+v %d inside, %+v\n%s", c.Component, c.Inside, c.Origin, textOf(t, r))
	}
	if len(c.Findings) != 1 || c.Findings[0].Hosts != 9 || c.Findings[0].Elsewhere != 0 || !strings.Contains(c.Text, "All workers are busy on 9 of these hosts and 0 others. 10 of 10") {
		t.Errorf("findings %+v\n%s", c.Findings, c.Text)
	}
	if len(r.Findings) != 15 {
		t.Errorf("%d other findings, want those of 15 hosts", len(r.Findings))
	}
}

// TestBehindATranslatedAddress: the database is called by an address that no host has;
// requests that were seen at both ends tell whose it is. Without them it is not known.
func TestBehindATranslatedAddress(t *testing.T) {
	for _, seen := range []bool{true, false} {
		w := newWorld(6)
		w.unkept = !seen
		w.db = step(1000, 45*time.Millisecond)
		w.address = func(string) string { return "192.0.2.100" }
		w.run(1200)
		w.find("db-7", "fsync-bound", "Requests wait for fsync.", onDisk, 0.93, 1020)
		r := w.why(t, 600, 1200)
		valid(t, r)
		text := textOf(t, r)
		known := slices.ContainsFunc(r.NotTested, func(u Unchecked) bool { return strings.Contains(u.What, "192.0.2.100:3306") })
		named := slices.ContainsFunc(r.Causes, func(c Cause) bool {
			return c.Component.Value == "192.0.2.100:3306" && c.Origin != nil && c.Origin.Host == "db-7"
		})
		if named != seen || known == seen {
			t.Errorf("seen at both ends %v:\n%s", seen, text)
		}
	}
}

func TestSilentHost(t *testing.T) {
	w := newWorld(5)
	w.silent = func(host string, s int64) bool { return host == "web-2" && s >= 700 || host == "web-3" && s >= 1170 }
	w.run(1200)
	r := w.why(t, 600, 1200)
	valid(t, r)
	text := textOf(t, r)
	if r.Fleet.Silent != 1 || !strings.Contains(text, "web-2: silent since 2027-01-15 10:11:39") || !strings.Contains(text, "web-3: its figures end 30 s before") {
		t.Errorf("%d silent:\n%s", r.Fleet.Silent, text)
	}
	if len(r.Causes) != 0 {
		t.Errorf("a host that says nothing is no cause:\n%s", text)
	}
}

// TestClocksThatAreAhead: a host whose clock is ten minutes ahead is reported; one that is
// behind looks as if it were silent, and it is said by which clock.
func TestClocksThatAreAhead(t *testing.T) {
	w := newWorld(4)
	w.run(700)
	w.host("web-1", "10.0.1.2", nil, 700+600)
	w.host("web-2", "10.0.1.3", nil, 700+20)
	w.host("web-9", "10.0.1.9", nil, 700-600)
	text := textOf(t, w.why(t, 300, 700, func(q *Question) { q.Now = moment(703) }))
	if !strings.Contains(text, "web-1: its clock is about 9m57s ahead") {
		t.Errorf("a clock that is ahead:\n%s", text)
	}
	if strings.Contains(text, "web-2:") || !strings.Contains(text, "web-9: silent since 2027-01-15 10:01:40, by its own clock") {
		t.Errorf("other clocks:\n%s", text)
	}
	if text := textOf(t, w.why(t, 300, 700)); strings.Contains(text, "its clock is") {
		t.Errorf("nobody said what time it is:\n%s", text)
	}
}

func TestNothingIsWrong(t *testing.T) {
	w := newWorld(5)
	w.run(1200)
	w.find("web-3", "time-wait", "TIME_WAIT.", cause.Subject{Kind: "namespace"}, 0.1, 1000)
	r := w.why(t, 600, 1200)
	valid(t, r)
	if text := textOf(t, r); len(r.Abnormal) != 0 || !r.Found() || !strings.Contains(text, "None of 21 endpoints is slow or failing") || !strings.HasPrefix(text, "PROBLEM  web-3: TIME_WAIT\n") || !strings.Contains(text, "next: ssh web-3 sudo slowray why\n") {
		t.Errorf("nothing is wrong, and a host has a finding:\n%s", text)
	}
}

func TestEmptyArchive(t *testing.T) {
	r, err := Why(context.Background(), new(memory.Archive), Question{From: moment(0), To: moment(600)})
	if err != nil {
		t.Fatal(err)
	}
	valid(t, r)
	if text := textOf(t, r); r.Found() || !strings.Contains(text, "no host has ever shipped here") || strings.Contains(text, "Nothing is abnormal") {
		t.Errorf("an empty archive:\n%s", text)
	}
	for _, q := range []Question{{}, {From: moment(10), To: moment(10)}, {From: moment(10), To: moment(0)}, {From: moment(0), To: moment(48 * 3600)}} {
		if _, err := Why(context.Background(), new(memory.Archive), q); err == nil {
			t.Errorf("%v to %v has an answer", q.From, q.To)
		}
	}
}

// TestHostileNames: names of hosts, processes, labels and findings that mean harm.
func TestHostileNames(t *testing.T) {
	const bad = "\x1b]0;owned\a\x1b[2J\u009b31m\u202ea<script>\xff"
	w := newWorld(4)
	w.db = step(1000, 45*time.Millisecond)
	w.label = func(int) map[string]string { return map[string]string{bad: bad} }
	w.run(1100)
	w.host(bad, bad, map[string]string{bad: bad}, 0)
	w.second(bad, 1, bad, bad, 1, 1000, 5, spans{server: time.Millisecond})
	w.second("web-1", 2, bad, bad, -1, 1000, 5, spans{server: time.Millisecond})
	w.find("db-7", bad, bad, cause.Subject{Kind: bad, Comm: bad, Path: bad}, 1, 1000)
	w.find(bad, bad, bad, cause.Subject{Kind: bad, Comm: bad, Path: bad, Interface: bad}, 1, 1000)
	r := w.why(t, 600, 1100, func(q *Question) { q.Progress = func(string, float64) {} })
	valid(t, r)
	if len(r.Causes) == 0 || len(r.Causes[0].Findings) == 0 {
		t.Errorf("the cause is not found:\n%s", textOf(t, r))
	}
}

// TestClientNetwork: packets to one network of clients are lost.
func TestClientNetwork(t *testing.T) {
	w := newWorld(2)
	w.run(1300)
	for s := range int64(1300) {
		if s%60 == 0 {
			w.host("front", "203.0.113.1", nil, s)
		}
		lost := time.Duration(0)
		if s >= 1000 {
			lost = 30 * time.Millisecond // on average of all
		}
		w.second("front", observe.Served, "nginx", "203.0.113.1", 443, s, 40, spans{server: 2 * time.Millisecond, network: 10*time.Millisecond + lost})
		for i := range 8 {
			r := &store.Request{Process: observe.Identity{Comm: "nginx"}}
			net := (int(s) + i) % 8
			r.Side, r.Seq, r.Weight, r.BytesIn, r.BytesOut = observe.Served, 1, 5, 100, 1000
			r.StartNS = (began+s)*1e9 + int64(i)*1e8
			r.Local = netip.MustParseAddrPort("203.0.113.1:443")
			r.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(100 + net), byte(1 + s%200)}), uint16(20000+s))
			r.Ledger[observe.Server], r.Ledger[observe.Network] = 2e6, 10e6
			if net == 3 && s >= 1000 && s%3 > 0 {
				r.Ledger[observe.Retrans], r.Retrans, r.Weight = 300e6, 1, 1
			}
			w.AddRequest("front", r)
		}
	}
	r := w.why(t, 700, 1300)
	c := one(t, r)
	if c.Component != (anomaly.Component{Kind: anomaly.Clients, Value: "198.51.103.0/24"}) || !c.Network || c.Origin != nil {
		t.Errorf("%+v:\n%s", c.Component, textOf(t, r))
	}
}

// TestNext: what is over is looked up in the history, what can be proved is, and a cause
// that slowray does not know reaches no shell.
func TestNext(t *testing.T) {
	since, until := moment(60), moment(120)
	proved := func(id cause.ID) []Finding {
		return []Finding{{Host: "db-7", Finding: cause.Finding{Cause: id, Prove: &cause.Prove{}}}}
	}
	for name, c := range map[string]struct {
		of   Cause
		want []string
	}{
		"over":        {Cause{Since: since, Until: &until, Origin: &Origin{Host: "db-7", Port: 3306}}, []string{"ssh db-7 sudo slowray why --at 2027-01-15T10:01:00Z --port 3306"}},
		"provable":    {Cause{Origin: &Origin{Host: "db-7"}, Findings: proved("nagle-delayed-ack")}, []string{"ssh db-7 sudo slowray why", "ssh db-7 sudo slowray prove nagle-delayed-ack"}},
		"unknown":     {Cause{Origin: &Origin{Host: "db-7"}, Findings: proved("x;reboot")}, []string{"ssh db-7 sudo slowray why"}},
		"another's":   {Cause{Origin: &Origin{Host: "db-7"}, Findings: append([]Finding{{Host: "db-7", Finding: cause.Finding{Cause: "deadlock"}}}, proved("nagle-delayed-ack")...)}, []string{"ssh db-7 sudo slowray why"}},
		"of no host":  {Cause{}, []string{}},
		"many hosts":  {Cause{Findings: []Finding{{Host: "web-1", Finding: cause.Finding{Subject: cause.Subject{Port: 8080}}}}}, []string{"ssh web-1 sudo slowray why --port 8080"}},
		"quoted host": {Cause{Origin: &Origin{Host: "a;b"}}, []string{"ssh 'a;b' sudo slowray why"}},
	} {
		if got := shell.Strings(next(&c.of)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
