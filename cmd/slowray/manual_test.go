package main

import (
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/manual"
)

// TestManualTellsAll: every command and flag is in the manual page and can be
// completed, with words of every kind that is asked for.
func TestManualTellsAll(t *testing.T) {
	model := newParser(new(cli), io.Discard, io.Discard).Model
	var b strings.Builder
	if err := manual.Page(&b, model, "v1", nil); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	seen := 0
	var walk func(n *kong.Node, path []string)
	walk = func(n *kong.Node, path []string) {
		for _, f := range n.Flags {
			if f.Hidden {
				continue
			}
			seen++
			if !strings.Contains(page, `\fB\-\-`+strings.ReplaceAll(f.Name, "-", `\-`)+`\fR`) {
				t.Errorf("the manual page does not tell of --%s", f.Name)
			}
			if !completes(model, append(path[:len(path):len(path)], "--"+f.Name[:1]), "--"+f.Name) {
				t.Errorf("%v: --%s is not completed", path, f.Name)
			}
		}
		values := slices.Clone(n.Positional)
		for _, f := range n.Flags {
			values = append(values, f.Value)
		}
		for _, v := range values {
			if kind := v.Tag.Get("complete"); kind != "" && kind != "files" && kind != "dirs" && len(completionValues(kind)) == 0 {
				t.Errorf("%v: there are no words of kind %q", path, kind)
			}
		}
		for _, c := range n.Children {
			if c.Hidden {
				if completes(model, append(path[:len(path):len(path)], ""), c.Name) {
					t.Errorf("%s is hidden, and completed", c.Name)
				}
				continue
			}
			seen++
			full := append(path[:len(path):len(path)], c.Name)
			if !completes(model, append(path[:len(path):len(path)], c.Name[:1]), c.Name) {
				t.Errorf("%v is not completed", full)
			}
			if !strings.Contains(page, `.SS "slowray `+strings.Join(full, " ")) {
				t.Errorf("the manual page does not tell of %v", full)
			}
			walk(c, full)
		}
	}
	walk(model.Node, nil)
	if seen < 100 {
		t.Fatalf("only %d commands and flags", seen)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("SKIPPED: no groff on this machine (script/setup.sh test installs it): the page is not formatted")
	}
	cmd := exec.Command(groff, "-man", "-ww", "-Tutf8")
	cmd.Stdin = strings.NewReader(page)
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil || wrong.Len() > 0 || len(out) < 10_000 {
		t.Errorf("groff: %v, %d bytes: %s", err, len(out), wrong.String())
	}
}

func completes(model *kong.Application, words []string, want string) bool {
	for _, c := range manual.Complete(model, words, completionValues).Candidates {
		if c.Word == want {
			return true
		}
	}
	return false
}
