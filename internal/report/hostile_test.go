package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// worst are texts that a process, a container, a name in DNS, a request or a line
// of a log of the watched host may be, to harm whoever reads of them.
var worst = []string{
	hostile,
	"\x1b]8;;http://evil/\x1b\\click\x1b]8;;\x1b\\\x1b[2J\x1b[H\u009b31m\x9b31m",
	`<script>alert(1)</script><img src=x onerror=alert(1)>"'&`,
	strings.Repeat("A", 64<<10),
	strings.Repeat("é\u202e", 20<<10),
	"GET /" + strings.Repeat("%2e", 21<<10) + " HTTP/1.1\r\nX: y",
	"\xff\xfe\xc3", "\u2066\u2069\u200b\u00ad\ufeff", "\r\n\r\nroot@host:~# rm -rf /", "\x00",
}

// harmless fails when text could drive a terminal or hide something on it.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: not UTF-8", what)
	}
	for i, c := range text {
		if c != '\n' && (unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp)) {
			t.Errorf("%s: character %U in %q", what, c, text[max(0, i-20):min(len(text), i+20)])
			return
		}
	}
}

// sane fails when JSON is none, or drives a terminal, too.
func sane(t *testing.T, what string, text []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	harmless(t, what, string(text))
}

// reportOf is a report in which everything that comes from a host is s.
func reportOf(s string) *diagnose.Report {
	r := example()
	r.Host.Name, r.Host.Kernel = s, s
	e := &r.Endpoints[0]
	e.Addr, e.Process.Comm, e.Process.Cgroup, e.Process.Container, e.Process.Name, e.Process.Unit = s, s, s, &s, &s, &s
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Title, f.Impact.Text, f.Impact.Of, f.Fix.Text = s, s, s, s
		f.Subject.Comm, f.Subject.Path, f.Subject.Rule, f.Subject.Interface, f.Subject.Container, f.Subject.Addr, f.Subject.Kind = s, s, s, s, s, s, s
		f.Fix.Commands, f.Fix.Persist = []shell.Command{shell.Line("x %s", shell.Word(s))}, []shell.Command{shell.Line("# %s", shell.Text(s))}
		f.Evidence = []cause.Evidence{{Fact: s, Value: s, Limit: s, Unit: s, Source: s}}
		f.Chain = []observe.WaitHop{{Process: observe.WaitProcess{PID: 1, Comm: s}, Comm: s, Object: s, Detail: s, Why: s, Remote: s, Wchan: s, Syscall: s}}
		f.ChainEnd = s
	}
	r.RuledOut[0].Because, r.NotChecked[0].Because, r.Losses[0].What = s, s, s
	return r
}

// TestWorstTextInReports: whatever the host calls its things, the report is
// harmless on a terminal, no longer than can be read, and its JSON is JSON.
func TestWorstTextInReports(t *testing.T) {
	for i, s := range worst {
		what := fmt.Sprintf("text %d", i)
		var text, plain bytes.Buffer
		if err := Text(&text, reportOf(s), Style{Width: 100}); err != nil {
			t.Fatal(err)
		}
		harmless(t, what, text.String())
		for line := range strings.Lines(text.String()) {
			if len(line) > 4*printable.MaxText {
				t.Errorf("%s: a line of %d bytes", what, len(line))
			}
		}
		if err := JSON(&plain, reportOf(s)); err != nil {
			t.Fatal(err)
		}
		sane(t, "JSON of "+what, plain.Bytes())
		var back struct{ Host struct{ Name string } }
		if err := json.Unmarshal(plain.Bytes(), &back); err != nil || utf8.ValidString(s) && back.Host.Name != s {
			t.Errorf("%s: JSON changes it: %v", what, err)
		}
		var drops bytes.Buffer
		if err := DropsJSON(&drops, &diagnose.DropReport{Host: diagnose.ReportHost{Name: s}, Losses: []observe.Loss{{What: s}}}); err != nil {
			t.Fatal(err)
		}
		sane(t, "JSON of drops, "+what, drops.Bytes())
	}
}

// TestWorstTextInRequests: each request is one line, in text and in JSON, with
// any label and any process.
func TestWorstTextInRequests(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i, s := range worst {
		process := func(int, int64) (observe.Identity, bool) {
			return observe.Identity{Comm: s, Cgroup: s, Container: s, ContainerName: s, Unit: s}, true
		}
		for range 20 {
			r := anyRequest(rng)
			r.Label, r.PID = s, 7
			text := AppendRequestText(nil, r, process, nil, Style{})
			line := AppendRequestJSON(nil, r, process, nil)
			for _, l := range [][]byte{text, line} {
				if n := bytes.Count(l, []byte("\n")); n != 1 || l[len(l)-1] != '\n' {
					t.Fatalf("text %d: %d newlines", i, n)
				}
			}
			harmless(t, fmt.Sprintf("text %d", i), string(text))
			if len(text) > 6*printable.MaxText {
				t.Errorf("text %d: a line of %d bytes", i, len(text))
			}
			sane(t, fmt.Sprintf("JSON of text %d", i), line)
		}
	}
}

// TestWriteJSON: what is escaped is the same text again when it is read.
func TestWriteJSON(t *testing.T) {
	for _, s := range []string{"\x7f", "\u009b", "\u202e", "\U000e0041", "\u2028", "é", "<b>", "\x1b\n\t\"\\", ""} {
		for _, write := range []func(*bytes.Buffer) error{
			func(b *bytes.Buffer) error { return printable.WriteJSON(b, map[string]string{s: s}) },
			func(b *bytes.Buffer) error { return printable.WriteJSONLine(b, map[string]string{s: s}) },
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			sane(t, fmt.Sprintf("%q", s), b.Bytes())
			got := map[string]string{}
			if err := json.Unmarshal(b.Bytes(), &got); err != nil || got[s] != s || len(got) != 1 {
				t.Errorf("%q became %q: %v", s, got, err)
			}
		}
	}
	var b bytes.Buffer
	if err := printable.WriteJSONLine(&b, []string{"a", "b"}); err != nil || b.String() != "[\"a\",\"b\"]\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
