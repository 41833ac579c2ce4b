package manual

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// model is a command line with everything that the real one has.
type model struct {
	Look struct {
		Port  []int  `sep:"," placeholder:"N" help:"A port."`
		Side  string `placeholder:"SIDE" complete:"sides" help:"A side."`
		Quick bool   `short:"q" help:"Quickly."`
		Out   string `short:"o" placeholder:"FILE" help:"A file."`
		Form  string `enum:"text,json" default:"text" help:".Dots and 'quotes' -- and a \\ backslash."`
		Dir   string `placeholder:"D" complete:"dirs" help:"A directory."`
		Old   bool   `hidden:"" help:"Not for everybody."`
	} `cmd:"" default:"withargs" help:"Look."`
	Tell struct {
		Cause string   `arg:"" complete:"causes" help:"A cause."`
		More  []string `arg:"" optional:"" complete:"files" help:"More."`
	} `cmd:"" help:"Tell."`
	Lab struct {
		Run struct {
			Name string `arg:"" optional:"" complete:"causes" help:"A name."`
		} `cmd:"" help:"Run."`
		List struct{} `cmd:"" help:"List."`
	} `cmd:"" help:"Lab."`
	Secret struct{} `cmd:"" hidden:"" help:"Secret."`
}

func app(t *testing.T) *kong.Application {
	t.Helper()
	k, err := kong.New(new(model), kong.Name("slowray"), kong.Description("An X-ray.\n\nSecond paragraph:\n  a  table\n.TH evil"))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

func words(kind string) []Candidate {
	return map[string][]Candidate{
		"sides":  {{Word: "served"}, {Word: "called"}},
		"causes": {{Word: "fd-limit"}, {Word: "fin-timeout"}, {Word: "conntrack-full"}},
	}[kind]
}

func TestComplete(t *testing.T) {
	const files, dirs = "FILES", "DIRS"
	for line, want := range map[string]string{
		"":                         "look tell lab",
		"l":                        "look lab",
		"--":                       "--help --port --side --quick --out --form --dir",
		"look --q":                 "--quick",
		"look --port ":             "",
		"look --port 80 --si":      "--side",
		"look --side ":             "served called",
		"look --side c":            "called",
		"look --side=c":            "--side=called",
		"look --side = c":          "called",
		"look --side =":            "served called",
		"look --form ":             "text json",
		"look -o ":                 files,
		"look --dir ":              dirs,
		"look --dir=a":             dirs,
		"look -q ":                 "",
		"look --quick --side s":    "served",
		"look --nonsense --side s": "served",
		"tell f":                   "fd-limit fin-timeout",
		"tell fd-limit ":           files,
		"tell fd-limit a b ":       files,
		"tell -- --":               "",
		"tell -- f":                "fd-limit fin-timeout",
		"lab ":                     "run list",
		"lab run c":                "conntrack-full",
		"lab run x y":              "",
		"sec":                      "",
		"nonsense l":               "",
	} {
		c := Complete(app(t), strings.Split(line, " "), words)
		var got []string
		for _, w := range c.Candidates {
			got = append(got, w.Word)
		}
		if c.Files {
			got = append(got, files)
		}
		if c.Dirs {
			got = append(got, dirs)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, strings.Join(got, " "), want)
		}
	}
	if c := Complete(app(t), nil, words); len(c.Candidates) != 3 {
		t.Errorf("without words: %v", c)
	}
}

func TestPage(t *testing.T) {
	var b strings.Builder
	if err := Page(&b, app(t), "v1", []Section{{"Files", []string{"one", ".two"}}}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		".SS \"slowray look\"\n", ".SS \"slowray lab run [<name>]\"\n", `\fB\-\-port\fR=\fIN,...\fR`, `\fB\-o\fR, \fB\-\-out\fR=\fIFILE\fR`,
		`\&.Dots and \(aqquotes\(aq \-\- and a \e backslash.`, "\n.nf\n\\&  a  table\n.fi\n", "\n\\&.TH evil\n", ".SH FILES\n", "\n\\&.two\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	for _, not := range []string{"old", "secret", "Not for everybody"} {
		if strings.Contains(text, not) {
			t.Errorf("the page tells of %q, which is hidden", not)
		}
	}
	plain := Plain(text, 60)
	for _, want := range []string{"\n   slowray lab run [<name>]\n", "\n       -o, --out=FILE\n              ", ".Dots and 'quotes' -- and a \\ backslash.", "\n         a  table\n", "\nFILES\n       one\n\n       .two\n"} {
		if !strings.Contains(plain, want) {
			t.Errorf("without man(1) it has no %q:\n%s", want, plain)
		}
	}
	for line := range strings.Lines(plain) {
		if len(strings.TrimSuffix(line, "\n")) > 60 || strings.Contains(line, `\f`) {
			t.Errorf("without man(1): %s", line)
		}
	}
}

func TestScripts(t *testing.T) {
	for _, shell := range Shells {
		text, err := Script(shell)
		if err != nil || !strings.Contains(text, "complete -- ") {
			t.Errorf("%s: %v", shell, err)
		}
	}
	if _, err := Script("csh"); err == nil {
		t.Error("csh is a shell")
	}
	got := Completion{Candidates: []Candidate{{"a", "b c"}}, Files: true}.Lines()
	if lines := strings.Split(got, "\n"); !slices.Equal(lines, []string{"a\tb c", filesLine, ""}) {
		t.Errorf("%q", lines)
	}
}
