package internal_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mdHeading = regexp.MustCompile(`^#{1,6} +(.*)$`)
	mdCode    = regexp.MustCompile("`[^`]*`")
	mdRef     = regexp.MustCompile(`docs/[\w./-]+\.md(#[\w-]+)?`)
)

// outside is a page without its fenced blocks.
func outside(text string) (lines []string) {
	fenced := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case !fenced:
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

// anchors are what links can point to on a page, as GitHub names headings.
func anchors(text string) []string {
	var list []string
	for _, line := range outside(text) {
		m := mdHeading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		heading := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(m[1], "]")
		list = append(list, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading))
	}
	return list
}

// broken are the links of a page, and what its text names below docs, that lead nowhere.
func broken(name, text string, root fs.FS) (list []string) {
	look := func(target, shown string) {
		file, anchor, _ := strings.Cut(target, "#")
		if file == "" {
			file = name
		}
		info, err := fs.Stat(root, file)
		if err != nil {
			list = append(list, shown)
			return
		}
		if anchor == "" || info.IsDir() {
			return
		}
		page, err := fs.ReadFile(root, file)
		if err != nil || !slices.Contains(anchors(string(page)), anchor) {
			list = append(list, shown)
		}
	}
	if path.Ext(name) != ".md" {
		for _, ref := range mdRef.FindAllString(text, -1) {
			look(ref, ref)
		}
		return list
	}
	for _, line := range outside(text) {
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(line, ""), -1) {
			switch target := m[1]; {
			case strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:"):
			case strings.HasPrefix(target, "#"):
				look(target, target)
			default:
				file, anchor, has := strings.Cut(target, "#")
				full := path.Join(path.Dir(name), file)
				if has {
					full += "#" + anchor
				}
				look(full, target)
			}
		}
	}
	return list
}

// Every relative link of a page leads to a file and a heading that are there; so does
// every page of docs that code names.
func TestLinksOfDocs(t *testing.T) {
	root := os.DirFS("..")
	links := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if name == "internal/links_test.go" || !slices.Contains([]string{".md", ".go", ".c", ".h", ".js", ".sh", ".html"}, filepath.Ext(name)) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		links += len(mdLink.FindAllString(string(text), -1))
		for _, link := range broken(name, string(text), root) {
			t.Errorf("%s: %s leads nowhere", name, link)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 500 {
		t.Errorf("only %d links: are they still found?", links)
	}
}

// Every page of docs is in the index, or in that of the causes.
func TestIndexOfDocsIsWhole(t *testing.T) {
	index, err := os.ReadFile("../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.md", "howto/*.md"} {
		files, err := filepath.Glob("../docs/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			name := strings.TrimPrefix(filepath.ToSlash(file), "../docs/")
			if name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
				t.Errorf("docs/README.md does not list %s", name)
			}
		}
	}
}

// The figures of the scoreboard that README.md repeats are those of its last run.
func TestScoreboardOfReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	board, err := os.ReadFile("../docs/scoreboard.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(readme)) {
		if line = strings.TrimSpace(line); strings.Contains(line, " draws with") {
			if found++; !strings.Contains(string(board), line) {
				t.Errorf("README.md: %q is not in docs/scoreboard.md", line)
			}
		}
	}
	if found != 2 {
		t.Errorf("README.md has %d lines of the scoreboard, want 2", found)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	root := os.DirFS("..")
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"docs/x.md", "[a](ledger.md) [b](ledger.md#flags) [c](../README.md#needs) [d](https://example.org/none.md) `[e](none.md)`", 0},
		{"docs/x.md", "[a](ledgers.md) [b](ledger.md#flag) ![c](none.png)", 3},
		{"docs/x.md", "```\n[a](none.md)\n```", 0},
		{"x.go", "// docs/wait.md, docs/ledger.md#flags; docs/none.md and docs/ledger.md#none", 2},
	} {
		if got := broken(c.name, c.text, root); len(got) != c.want {
			t.Errorf("%q: %v, want %d", c.text, got, c.want)
		}
	}
}
