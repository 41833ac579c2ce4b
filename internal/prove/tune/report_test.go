package tune

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

// endings are reports of every kind of run.
func endings(t *testing.T) map[string]*Report {
	t.Helper()
	dry := apply()
	dry.Apply = false
	return map[string]*Report{
		"healed":   mustRun(t, t.Context(), incidentA(), apply()),
		"dry":      mustRun(t, t.Context(), incidentA(), dry),
		"calm":     mustRun(t, t.Context(), newFake(100), apply()),
		"harm":     mustRun(t, t.Context(), newFake(100, fakeFault{cause: "bad", was: "1", good: "2", harm: true, forever: true}), apply()),
		"stuck":    mustRun(t, t.Context(), newFake(0, fakeFault{cause: "odd", was: "1", good: "2"}, fakeFault{cause: "none"}), apply()),
		"not-made": mustRun(t, t.Context(), newFake(100, fakeFault{cause: "fixed", was: "1", good: "2", unmakeable: true}), apply()),
	}
}

func TestJSONMatchesItsSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../../schema/tune.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range endings(t) {
		var out bytes.Buffer
		if err := WriteJSON(&out, r); err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(&out)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTextTellsTheTableAndWhatToDo(t *testing.T) {
	all := endings(t)
	tests := map[string][]string{
		"healed": {"good/s", "12 → 312", "proved, kept", "net.ports 51 → 55536", "To make it permanent", "net.conntrack-full = 262144", "slowray undo", "5 of 6 changes kept", "tried before"},
		"dry":    {"sysctl -w net.conntrack-full=262144", "sysctl -w net.conntrack-full=200", "dry run", "--apply"},
		"calm":   {"No finding is left"},
		"harm":   {"Stopped", "made it worse"},
		"stuck":  {"Still found", "its change was tried: no effect", "nothing can be changed"},
	}
	verdicts := map[string]string{"healed": "OK", "dry": "NOT TRIED", "calm": "OK", "harm": "PROBLEM", "stuck": "PROBLEM"}
	for name, wants := range tests {
		var out bytes.Buffer
		if err := Text(&out, all[name], 100); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if !strings.HasPrefix(lines[0], verdicts[name]+"  ") || len(all[name].Steps) > 0 && lines[len(lines)-1] != lines[0] {
			t.Errorf("%s: no verdict %s first and last:\n%s", name, verdicts[name], out.String())
		}
	}
}

func TestTextHasNoControlCharacters(t *testing.T) {
	r := hostile(t)
	var out bytes.Buffer
	if err := Text(&out, r, 100); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(strings.ReplaceAll(out.String(), "\n", ""), "\x1b\x00\r\x07") {
		t.Errorf("control characters in %q", out.String())
	}
}

// hostile is a report whose names try to be more than names.
func hostile(t *testing.T) *Report {
	t.Helper()
	r := endings(t)["healed"]
	evil := "</title></style><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[2J\x00"
	r.Service, r.Load, r.Text, r.Host.Name = evil, evil, evil, evil
	r.Lasting = append(r.Lasting, shell.Line("# %s", evil))
	s := &r.Steps[0]
	s.Cause, s.Title, s.Seen, s.Text, s.Again = evil, evil, evil, evil, evil
	s.Do, s.Undo = []shell.Command{shell.Line("x %s", evil)}, []shell.Command{shell.Line("x %s   # %s", shell.Word(strings.ReplaceAll(evil, "\x00", "")), evil)}
	s.Changes = []cause.Change{{Kind: cause.ChangeSysctl, Text: evil}}
	s.Blocks[0].Phase = Phase(evil)
	r.Left = []Left{{Cause: evil, Title: evil, Because: evil, Fix: evil}}
	return r
}

func TestPageNeedsNothingAndRunsNothing(t *testing.T) {
	reports := endings(t)
	reports["hostile"] = hostile(t)
	for name, r := range reports {
		var out bytes.Buffer
		if err := HTML(&out, r); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		bare := regexp.MustCompile(`="[^"]*"`).ReplaceAllString(text, "=") // values of attributes are only text
		if found := regexp.MustCompile(`(?i)<(script|img|link|iframe|object|base|form)\b|<[^>]*\son\w+=|url\(|@import`).FindAllString(bare, -1); found != nil {
			t.Errorf("%s: the page has %q", name, found)
		}
		if regexp.MustCompile(`(src|href)="`).MatchString(text) {
			t.Errorf("%s: the page loads or links something", name)
		}
		policy := html.UnescapeString(regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)[1])
		style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(text)[1]
		sum := sha256.Sum256([]byte(style))
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("%s: policy %q does not allow the style, or allows more", name, policy)
		}
		for _, want := range []string{"prefers-color-scheme: dark", `name="viewport"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
	}
}

func TestChartsShowEveryBlockAndTheChange(t *testing.T) {
	var out bytes.Buffer
	if err := HTML(&out, endings(t)["healed"]); err != nil {
		t.Fatal(err)
	}
	svg := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindString(out.String())
	dec := xml.NewDecoder(strings.NewReader(svg))
	count := map[string]int{}
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "class" {
				count[e.Name.Local+"."+a.Value]++
			}
		}
	}
	for what, want := range map[string]int{"rect.before": 3, "rect.with": 3, "rect.after": 3, "line.mark": 2} {
		if count[what] != want {
			t.Errorf("%d %s, want %d: %v", count[what], what, want, count)
		}
	}
	for _, want := range []string{"changed", "undone", "Good responses per second", "Response time", "Errors per second"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestFiguresOfNothing(t *testing.T) {
	s := Step{Blocks: []Block{{Phase: Before, Seconds: 2}, {Phase: With, Seconds: 2}}}
	for _, c := range s.charts() {
		data, err := json.Marshal(c) // fails on NaN and Inf
		if err != nil {
			t.Errorf("%s: %v", data, err)
		}
	}
	if f := sum(nil, Before); f.Good != 0 || f.P50 != nil || f.Errors != nil {
		t.Errorf("figures of nothing: %+v", f)
	}
}

// TestWritePage writes the page to the file that TUNE_PAGE names, to be looked at.
func TestWritePage(t *testing.T) {
	name := os.Getenv("TUNE_PAGE")
	if name == "" {
		t.Skip("only to look at the page: TUNE_PAGE=FILE")
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := HTML(f, endings(t)["healed"]); err != nil {
		t.Fatal(err)
	}
}

// TestTextOfNothingToTry: what "is listed below" is, without --apply too, and the ending is
// said once.
func TestTextOfNothingToTry(t *testing.T) {
	var b strings.Builder
	r := &Report{Service: "web", Ending: Stuck, Text: "What was found is listed below.", Left: []Left{{Cause: "cpu-hot", Title: "CPU is busy", Because: "nothing to change"}}}
	if err := Text(&b, r, 80); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), r.Text) != 1 || !strings.Contains(b.String(), "cpu-hot: CPU is busy (nothing to change)") {
		t.Error(b.String())
	}
}
