package report

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// show prints the first screen of a report for each cause: go test -v -run InChinese -args -show
var show = flag.Bool("show", false, "print a report in Chinese for each cause, to be read")

func chinese(t *testing.T) *language.Language {
	t.Helper()
	l, err := language.New("zh")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestTitlesInChinese: every cause has a Chinese title of its own.
func TestTitlesInChinese(t *testing.T) {
	l := chinese(t)
	for _, c := range cause.Catalogue() {
		if got := l.Text(c.Title); got == c.Title || language.IsEnglish(got) {
			t.Errorf("%s: %q has no translation: %q", c.ID, c.Title, got)
		}
	}
}

// TestCorpusInChinese: what the recorded reports say of their causes is translated, but
// for the evidence.
func TestCorpusInChinese(t *testing.T) {
	l := chinese(t)
	files, err := filepath.Glob("../diagnose/testdata/corpus/*/report.json")
	if err != nil || len(files) < 200 {
		t.Fatalf("%d reports in the corpus (%v)", len(files), err)
	}
	missing := map[string]bool{}
	noted, translated := 0, 0
	check := func(what, text string) {
		got := l.Text(text)
		if bare := strings.ReplaceAll(got, "slowray wait", ""); language.IsEnglish(bare) && !missing[got] {
			missing[got] = true
			t.Errorf("%s: %q\nis partly English: %q", what, text, got)
		}
	}
	shown := map[cause.ID]bool{}
	for _, file := range files {
		r := readReport(t, file)
		if roots := causesOf(r); *show && len(roots) > 0 && !shown[roots[0].Cause] {
			shown[roots[0].Cause] = true
			if err := Text(os.Stdout, r, Style{Language: l}); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range r.Findings {
			what := string(f.Cause)
			check(what+", title", f.Title)
			check(what+", impact", f.Impact.Of)
			check(what+", impact", f.Impact.Text)
			check(what+", advice", f.Fix.Text)
			check(what+", end of the chain", f.ChainEnd)
			for _, c := range slices.Concat(f.Fix.Commands, f.Fix.Persist) {
				// A setting for a file is none of a language: "in FILE: SETTING".
				if _, note := c.Parts(); note != "" && !strings.HasPrefix(note, "in /") {
					noted++
					if got := (&printer{Style: Style{Language: l}}).note(note); strings.ContainsFunc(got, func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
						translated++
					} else {
						t.Logf("%s: the note %q stays English", what, note)
					}
				}
			}
		}
		for _, s := range r.Unlinked {
			check("not the cause", s.Text)
		}
		check("verdict", verdictOf(r))
	}
	if noted < 500 || translated < noted*95/100 {
		t.Errorf("of %d notes of commands %d are translated", noted, translated)
	}
}

func verdictOf(r *diagnose.Report) string {
	if len(causesOf(r)) > 0 {
		return harmText(r)
	}
	return healthText(r)
}

func readReport(t *testing.T, file string) *diagnose.Report {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r diagnose.Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return &r
}

// TestNotesInChinese: what a command notes is translated, but for a setting that is copied.
func TestNotesInChinese(t *testing.T) {
	p := &printer{Style: Style{Width: 200, Language: chinese(t)}}
	const setting = `'"log-opts": {"mode": "non-blocking", "max-buffer-size": "4m"}'`
	for _, c := range []struct {
		command shell.Command
		want    string
	}{
		{shell.Line("strace -p 7   # the calls that write one message in pieces"), "strace -p 7   # 把一条消息分几次写出的调用"},
		{shell.Line("# for all new containers, in /etc/docker/daemon.json: %s", shell.Word(strings.Trim(setting, "'"))), "# for all new containers, in /etc/docker/daemon.json: " + setting},
		{shell.Line("nginx -s reload"), "nginx -s reload"},
	} {
		if got := p.commands("", []shell.Command{c.command}); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestWideCharacters: Chinese takes two columns each, breaks between its characters, and
// no line begins with its punctuation.
func TestWideCharacters(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"全连接队列溢出", 8, []string{"全连接队", "列溢出"}},
		{"队列满，丢包", 6, []string{"队列", "满，丢", "包"}},
		{"调到（4096）即可", 6, []string{"调到", "（4096）", "即可"}},
		{"占 40 % 的时间", 8, []string{"占 40 %", "的时间"}},
		{"nginx 的 p99", 9, []string{"nginx 的", "p99"}},
	} {
		if got := printable.Wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.width, got, c.want)
		}
	}
	if got, want := printable.Pad("服务", 6)+"|", "服务  |"; got != want {
		t.Errorf("pad: %q, want %q", got, want)
	}
	if got, want := printable.Cut("全连接队列溢出", 7), "全连接…"; got != want {
		t.Errorf("shorten: %q, want %q", got, want)
	}
}

// TestChineseFits: no line of prose of a first screen is wider than the terminal; commands are
// never wrapped.
func TestChineseFits(t *testing.T) {
	const width = 90
	r := readReport(t, "../diagnose/testdata/corpus/lab-tcprt-six-phases-1/report.json")
	var text strings.Builder
	if err := Text(&text, r, Style{Language: chinese(t), Width: width}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimRight(line, "\n"); ansi.StringWidth(line) > width && strings.ContainsFunc(line, func(r rune) bool { return unicode.Is(unicode.Han, r) }) && !strings.Contains(line, "redacted") {
			t.Errorf("%d columns: %q", ansi.StringWidth(line), line)
		}
	}
}
