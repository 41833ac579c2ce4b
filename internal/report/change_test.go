package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

func TestChangesBesideFindings(t *testing.T) {
	change := func(kind observe.ChangeKind, before float64, what, path string) diagnose.Change {
		at := time.Unix(1_800_000_000, 0).Add(-time.Duration(before * float64(time.Second)))
		return diagnose.Change{Kind: kind, What: what, Path: path, At: &at, Before: &before, RelativeTo: "end"}
	}
	r := example()
	r.Changes = []diagnose.Change{
		change(observe.ChangeConfig, -3, "changed", "/etc/hosts\x1b[31m"),
		change(observe.ChangePackage, 300, "nginx 1 → 2", ""), change(observe.ChangePackage, 301, "a installed", ""),
		change(observe.ChangePackage, 302, "b installed", ""), change(observe.ChangePackage, 303, "c installed", ""),
		change(observe.ChangePackage, 9000, "d removed", ""),
		change(observe.ChangeBoot, 86400*3, "the kernel was started", ""),
		{Kind: observe.ChangeSetting, What: "vm.swappiness is 10, not 60"}, {Kind: observe.ChangeSetting, What: "vm.dirty_ratio is 1, not 20"},
	}
	r.Changes[0].PID, r.Changes[0].Comm = 7, "nginx"
	var b bytes.Buffer
	if err := Text(&b, r, Style{All: true}); err != nil {
		t.Fatal(err)
	}
	want := `Recent changes (before the end of this window; no verdict)
  3 s after       nginx (pid 7): /etc/hosts�[31m changed
  5 min           packages: nginx 1 → 2, a installed, b installed and 1 more
  2 h             packages: d removed
  3 days          the kernel was started
  no date         settings of the kernel that are not its own: vm.swappiness is 10, not 60,
                  vm.dirty_ratio is 1, not 20
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := Text(&b, r, Style{}); err != nil {
		t.Fatal(err)
	}
	if want := "Recent changes: nginx (pid 7): /etc/hosts�[31m changed (3 s after); 8 more: -v\n"; !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	r.Findings = nil
	if err := Text(&b, r, Style{}); err != nil || strings.Contains(b.String(), "Recent changes") {
		t.Errorf("%v: listed although nothing is wrong\n%s", err, b.String())
	}
}
