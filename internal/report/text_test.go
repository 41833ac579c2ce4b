package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

func example() *diagnose.Report {
	parent := cause.ID("conntrack-full")
	requests, rate, good := int64(1200), 120.0, 118.5
	return &diagnose.Report{
		Host:   diagnose.ReportHost{Name: "web1", Kernel: "6.1.0", CPUs: 8},
		Window: diagnose.ReportWindow{Start: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC), Seconds: 10.02},
		Endpoints: []diagnose.Endpoint{{Side: "served", Addr: "0.0.0.0", Port: 8088, Opened: 51,
			Process: &diagnose.Process{PID: 77, Comm: "nginx"}, Requests: &requests, RPS: &rate, GoodRPS: &good}},
		Findings: []cause.Finding{
			{Cause: parent, Title: "The table is full", Role: cause.RoleCause, Confidence: 0.934,
				Subject: cause.Subject{Kind: "namespace", NetNS: 4026532177},
				Impact:  cause.Impact{Share: 0.992, Of: "connection attempts", Text: "6,300 packets dropped"},
				Evidence: []cause.Evidence{
					{Fact: "packets dropped", Value: uint64(6300), Unit: "packets", Source: "conntrack statistics"},
					{Fact: "entries", Value: uint64(200), Limit: uint64(200), Source: "sysctl"}},
				Fix:   cause.Fix{Text: "Raise the limit.", Commands: []shell.Command{shell.Line("sysctl -w net.netfilter.nf_conntrack_max=262144")}, Persist: []shell.Command{shell.Line("echo x > /etc/sysctl.d/90.conf")}},
				Prove: &cause.Prove{Command: shell.Line("slowray prove conntrack-full --port 8088 --apply"), Hot: true}},
			{Cause: "client-aborts", Title: "Clients give up", Role: cause.RoleConsequence, ConsequenceOf: &parent,
				Impact: cause.Impact{Text: "800 of 2,000 requests"}},
		},
		RuledOut:   []diagnose.Excluded{{Cause: "fd-limit", Because: "256 of 20,000 open"}},
		NotChecked: []diagnose.Excluded{{Cause: "time-wait-port-search", Because: "not permitted"}},
		Losses:     []observe.Loss{{What: "kernel log lines overwritten", Count: 3}},
	}
}

const golden = `PROBLEM  network namespace 4026532177  The table is full
web1 watched for 10 s, from 2026-11-21 04:00:00 +01:00 to 04:00:10 (Linux 6.1.0, 8 CPUs)

1. The table is full  [conntrack-full]  confidence 0.93
   where     network namespace 4026532177
   impact    99.2 % of connection attempts: 6,300 packets dropped
   evidence  packets dropped: 6,300 packets
             entries: 200 of 200
   fix       sysctl -w net.netfilter.nf_conntrack_max=262144
   prove     slowray prove conntrack-full --port 8088 --apply
   explains  also client-aborts

Services
  address                process               pid  new conns answers/s    good/s
  0.0.0.0:8088           nginx                  77         51     120.0     118.5

1 cause ruled out, 1 not checked (not permitted) · -v lists all
Lost events: 3 kernel log lines overwritten

PROBLEM  network namespace 4026532177  The table is full
`

const goldenAll = `PROBLEM  network namespace 4026532177  The table is full
web1 watched for 10 s, from 2026-11-21 04:00:00 +01:00 to 04:00:10 (Linux 6.1.0, 8 CPUs)

1. The table is full  [conntrack-full]  confidence 0.93
   where     network namespace 4026532177
   impact    99.2 % of connection attempts: 6,300 packets dropped
   fix       Raise the limit.
             sysctl -w net.netfilter.nf_conntrack_max=262144
   permanent echo x > /etc/sysctl.d/90.conf
   prove     slowray prove conntrack-full --port 8088 --apply
   evidence  packets dropped: 6,300 packets (conntrack statistics)
             entries: 200 of 200 (sysctl)
   explains  also client-aborts: Clients give up (800 of 2,000 requests)

Services
  address                process               pid  new conns answers/s    good/s
  0.0.0.0:8088           nginx                  77         51     120.0     118.5

Ruled out
  fd-limit                       256 of 20,000 open

Not checked
  time-wait-port-search          not permitted

Lost events: kernel log lines overwritten: 3

PROBLEM  network namespace 4026532177  The table is full
`

func TestText(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("", 3600)
	t.Cleanup(func() { time.Local = local })
	for all, want := range map[bool]string{false: golden, true: goldenAll} {
		var b bytes.Buffer
		if err := Text(&b, example(), Style{All: all}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("all %v: %s", all, diff)
		}
	}
}

func TestTextWithoutFindings(t *testing.T) {
	var b bytes.Buffer
	if err := Text(&b, &diagnose.Report{}, Style{Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "OK\x1b[0m  no TCP service had traffic") {
		t.Error(b.String())
	}
}

// TestHostileText: names and log lines of the watched host must not drive the
// terminal of whoever reads the report.
func TestHostileText(t *testing.T) {
	hostile := "a\x1b]0;owned\x07\x1b[2J\u202e\x00\xff\u009bb\rc\nd"
	r := example()
	r.Host.Name = hostile
	r.Endpoints[0].Process.Comm = hostile
	f := &r.Findings[0]
	f.Title, f.Subject.Comm, f.Subject.Path, f.Impact.Text = hostile, hostile, hostile, hostile
	f.Evidence[0].Value, f.Fix.Commands[0], f.Fix.Persist[0] = hostile, shell.Line("x %s", strings.ReplaceAll(hostile, "\x00", "")), shell.Line("# %s", hostile)
	r.RuledOut[0].Because, r.Losses[0].What = hostile, hostile
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

func TestColourOnlyWhenAsked(t *testing.T) {
	var plain, coloured bytes.Buffer
	if err := Text(&plain, example(), Style{}); err != nil {
		t.Fatal(err)
	}
	if err := Text(&coloured, example(), Style{Color: true}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(coloured.String(), "\x1b[1;31m") {
		t.Error("colour where none was asked for, or none where it was")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, bytes.ErrTooLarge }

func TestWriteErrorIsReported(t *testing.T) {
	if Text(full{}, example(), Style{}) == nil || JSON(full{}, example()) == nil {
		t.Error("a failed write went unnoticed")
	}
}

func TestTextTellsWhatWasLost(t *testing.T) {
	for _, c := range []struct {
		lost, explained float64
		want            string
	}{
		{41.2, 40, "All requests together lost 41.2 s in this window; known causes explain 97 % of it."},
		{3, 0, "known causes explain 0 % of it."},
		{0, 0, ""},
	} {
		var out strings.Builder
		if err := Text(&out, &diagnose.Report{Account: cause.Account{Lost: c.lost, Explained: c.explained}}, Style{}); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(out.String(), "All requests together lost"); told != (c.want != "") || !strings.Contains(out.String(), c.want) {
			t.Errorf("%g of %g s:\n%s", c.explained, c.lost, out.String())
		}
	}
}

func TestTextTellsOfRequestsThatHang(t *testing.T) {
	r := diagnose.Report{Endpoints: []diagnose.Endpoint{{Side: "served", Addr: "10.1.2.3", Port: 8088, Unfinished: 5}}}
	var out strings.Builder
	if err := Text(&out, &r, Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "5 requests of a process :8088 had no answer") {
		t.Errorf("five requests without an answer are passed over:\n%s", out.String())
	}
}

// TestExcludedTogether: causes that share a reason are listed with it, and only by -v.
func TestExcludedTogether(t *testing.T) {
	r := &diagnose.Report{NotChecked: []diagnose.Excluded{{Cause: "first", Because: "nobody looked"}, {Cause: "few", Because: "no right"},
		{Cause: "second", Because: "nobody looked"}, {Cause: "third", Because: "nobody looked"}}}
	for all, want := range map[bool]string{false: "0 causes ruled out, 4 not checked (nobody looked, …) · -v lists all\n", true: "nobody looked; the same for second, third\n"} {
		var b bytes.Buffer
		if err := Text(&b, r, Style{All: all, Width: 120}); err != nil {
			t.Fatal(err)
		}
		if text := b.String(); !strings.Contains(text, want) || strings.Contains(text, "few ") != all {
			t.Errorf("all %t:\n%s", all, text)
		}
	}
}

// TestUndecided: where most could not be checked, no finding does not mean that all is well.
func TestUndecided(t *testing.T) {
	r := &diagnose.Report{RuledOut: []diagnose.Excluded{{Cause: "a", Because: "no"}},
		NotChecked: []diagnose.Excluded{{Cause: "network-loss", Because: "not permitted"}, {Cause: "conntrack-full", Because: "not permitted"}, {Cause: "kernel-log", Because: "not permitted"}}}
	var b bytes.Buffer
	if err := Text(&b, r, Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "UNKNOWN  2 of 3 causes could not be checked (run as root): not permitted\n") || !Undecided(r) {
		t.Error(b.String())
	}
	if r.Capture = new(observe.Capture); Undecided(r) {
		t.Error("a capture that shows nothing is not decided")
	}
}

// TestSubjectInPod: a container of a pod is called what kubectl calls its workload.
func TestSubjectInPod(t *testing.T) {
	s := &cause.Subject{Kind: "process", PID: 7, Comm: "app", Port: 80, Container: "3c5a6e1f0c2b", Workload: observe.Workload{Namespace: "shop", Pod: "cart-5d9-a", Container: "app", Kind: "Deployment", Name: "cart"}}
	if got, want := SubjectText(s), "app (pid 7), deploy/cart (ns shop), container app, port 80"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.Workload = observe.Workload{Namespace: "shop", Pod: "job\x1b[31m", Kind: "Pod"}
	if got := SubjectText(s); strings.ContainsRune(got, 0x1b) {
		t.Errorf("%q", got)
	}
}
