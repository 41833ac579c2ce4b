package proof

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/shell"
)

// steady is a service that answers ten times as fast with the change.
type steady struct {
	on bool
	n  int
}

func (s *steady) Apply() error { s.on = true; return nil }
func (s *steady) Undo() error  { s.on = false; return nil }

func (s *steady) Block(_ context.Context, d time.Duration) (experiment.Block, error) {
	s.n++
	rate, p50 := 500.0, 180e6
	if s.on {
		rate, p50 = 5000, 20e6
	}
	rate *= 1 + float64(s.n%3)/100
	n := uint64(rate * d.Seconds())
	return experiment.Block{
		Start: time.Date(2026, 11, 22, 6, 0, s.n, 0, time.UTC), Seconds: d.Seconds(), Requests: n + 10, Good: n, Errors: 10, Timed: n, P50: p50, P99: 3 * p50,
		Parts: map[string]float64{"server": 2 * p50}, Counters: map[string]float64{"TcpExt.ListenOverflows": 10 * p50 / 1e6},
	}, nil
}

func documents(t *testing.T) (dry, done *Document) {
	t.Helper()
	make := func() *Document {
		c := cause.Change{Kind: cause.ChangeSysctl, Name: "net.core.somaxconn", Was: "10", Value: "4096", Text: "net.core.somaxconn 10 → 4096, on the host"}
		return &Document{
			Schema: SchemaProve, Host: "web1", Cause: "accept-queue-overflow", Title: "The accept queue is full", Found: true,
			Service: Service{Port: 80, NetNS: 4026531840, PID: 12, Comm: "nginx", Requests: 505.2},
			Steps:   []Step{{Change: c, Was: "10", Do: []shell.Command{shell.Line("sysctl -w net.core.somaxconn=4096")}, Undo: []shell.Command{shell.Line("sysctl -w net.core.somaxconn=10")}}},
			Persist: []shell.Command{shell.Line("echo 'net.core.somaxconn=4096' > /etc/sysctl.d/90-somaxconn.conf")},
			Finding: &cause.Finding{
				Cause: "accept-queue-overflow", Title: "The accept queue is full", Verdict: cause.Supported, Role: cause.RoleCause,
				Subject: cause.Subject{Kind: "listener", Port: 80}, Impact: cause.Impact{Share: 0.5, Of: "new connections", Text: "half of the new connections were dropped"},
				Evidence: []cause.Evidence{{Fact: "ListenOverflows", Value: 1800, Source: "/proc/net/netstat"}}, Fix: cause.Fix{Text: "raise it", Commands: []shell.Command{}, Changes: []cause.Change{c}},
			},
		}
	}
	s := &steady{}
	r, err := experiment.Run(t.Context(), s, s, experiment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dry, done = make(), make()
	done.Conclude(r, "")
	return dry, done
}

func TestText(t *testing.T) {
	const head = `
The accept queue is full  [accept-queue-overflow]
  where     requests to port 80 (nginx), 505/s in the look
  impact    half of the new connections were dropped
  change    net.core.somaxconn 10 → 4096, on the host
  now       10
  fix       sysctl -w net.core.somaxconn=4096
  undo      sysctl -w net.core.somaxconn=10

`
	const verdict = "PROVED  net.core.somaxconn 10 → 4096, on the host: good responses 505/s → 5,050/s\n"
	dry, done := documents(t)
	kept := *done
	kept.Kept = "0007"
	dry.Takes = "takes a while"
	for want, d := range map[string]*Document{
		"NOT TRIED  accept-queue-overflow on nginx :80: nothing was changed (--apply tries it)\n" +
			head + "Nothing was changed. With --apply it is changed, measured and put back; slowray takes a while.\n": dry,
		verdict + head + result + "The change is undone.\n" + persist + "\n" + verdict:                                 done,
		verdict + head + result + "The change is kept (slowray undo 0007 takes it back).\n" + persist + "\n" + verdict: &kept,
	} {
		var b strings.Builder
		if err := d.Text(&b, 100, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

const result = `PROVED: good responses went from 505/s to 5,050/s with the change, and to 505/s without it again;
p50 went from 180 ms to 20 ms (better); p99 went from 540 ms to 60 ms (better)

                           before         with    after          with ÷ without
  good responses            505/s      5,050/s    505/s      9.99 (9.8 to 10.2) better
  errors                    0.7 %  under 0.1 %    0.7 %  0.311 (0.308 to 0.314) unclear
  p50                      180 ms        20 ms   180 ms  0.111 (0.111 to 0.111) better
  p99                      540 ms        60 ms   540 ms  0.111 (0.111 to 0.111) better
  requests                  508/s      5,053/s    508/s                    9.94
  p99 of server            360 ms        40 ms   360 ms                   0.111
  TcpExt.ListenOverflows  1,800/s        200/s  1,800/s                   0.111

Medians of 3 blocks with the change, which was made once, and 6 without it, of 3 s each; ratios with
intervals of at least 95 %.
`

const persist = `To make it permanent:
  echo 'net.core.somaxconn=4096' > /etc/sysctl.d/90-somaxconn.conf
`

// TestVerdictFits: on any terminal the figures are in it, however long the change is.
func TestVerdictFits(t *testing.T) {
	_, done := documents(t)
	done.Steps[0].Change.Text = "net.ipv4.tcp_rmem 4096 131072 6291456 → 4096 131072 16777216, in network namespace 4026532177"
	for _, width := range []int{60, 80, 200} {
		var b strings.Builder
		if err := done.Text(&b, width, nil); err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(b.String(), "\n")
		if ansi.StringWidth(line) > width || !strings.HasPrefix(line, "PROVED  net.ipv4.tcp_rmem") || !strings.HasSuffix(line, ": good responses 505/s → 5,050/s") {
			t.Errorf("in %d columns: %s", width, line)
		}
	}
	done.Service.Comm = "booking-app"
	done.Steps[0].Change.Text = "TCP_NODELAY on the connections of booking-app"
	for width, want := range map[int]string{
		60: "PROVED  TCP … on booking-app: good responses 505/s → 5,050/s",
		80: "PROVED  TCP_NODELAY on booking-app: good responses 505/s → 5,050/s",
		90: "PROVED  TCP_NODELAY on the connections of booking-app: good responses 505/s → 5,050/s",
	} {
		var b strings.Builder
		if err := done.Text(&b, width, nil); err != nil {
			t.Fatal(err)
		}
		if line, _, _ := strings.Cut(b.String(), "\n"); line != want {
			t.Errorf("in %d columns: %s\nwant %s", width, line, want)
		}
	}
}

// TestTextInChinese: verdict, table and endings are in the language of the reader; what
// the finding says is the catalogue's.
func TestTextInChinese(t *testing.T) {
	reader, err := language.New("zh")
	if err != nil {
		t.Fatal(err)
	}
	dry, done := documents(t)
	for _, d := range []*Document{dry, done} {
		d.Title, d.Finding.Impact.Text = "The accept queue overflows", "20 of 40 accept() calls failed"
		var b strings.Builder
		if err := d.Text(&b, 100, reader); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if language.IsEnglish(line) {
				t.Errorf("English in Chinese: %s", line)
			}
		}
		for _, want := range []string{"全连接队列溢出  [accept-queue-overflow]\n", "  影响      40 次 accept() 中 20 次失败\n", "  撤销      sysctl -w net.core.somaxconn=10\n"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	}
}

// TestStopped tells that nothing was changed when it ended before that.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &steady{}
	r, err := experiment.Run(ctx, s, s, experiment.Options{Progress: func(step experiment.Step) {
		if step.Phase == "before" && step.Block == 2 {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, d := documents(t)
	d.Conclude(r, "")
	var b strings.Builder
	if err := d.Text(&b, 100, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"UNDECIDED: it was stopped before it was over", "503/s     -      -               -",
		"Medians of 2 blocks without the change, of 3 s each.\nNothing was changed.\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// provedFinding finds the verdict of the finding, which its confidence may follow; not
// that of the experiment.
var provedFinding = regexp.MustCompile(`"verdict": "proved",\s+("confidence": [\d.]+,\s+)?"role"`)

// TestJSON holds the document to its schema.
func TestJSON(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	schema, err := compiler.Compile("../../../schema/prove.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	dry, done := documents(t)
	idle := *dry
	idle.Conclude(experiment.Result{Verdict: experiment.TooLittle, Why: "nobody asked", Effects: []experiment.Effect{}, Phases: []experiment.Phase{}, Undone: true}, "")
	notFound := *dry
	notFound.Found, notFound.Finding, notFound.Service = false, nil, Service{}
	for name, d := range map[string]*Document{"dry": dry, "done": done, "idle": &idle, "not found": &notFound} {
		var b bytes.Buffer
		if err := d.JSON(&b); err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if proved := provedFinding.MatchString(b.String()); proved != (name == "done") {
			t.Errorf("%s: the finding is proved: %v", name, proved)
		}
	}
}
