// Package internal_test keeps the direction of imports that
// docs/architecture.md promises.
package internal_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/slowray/slowray/"

// systemPackages let a package reach beyond its arguments.
var systemPackages = []string{"os", "os/exec", "net", "net/http", "syscall", "io/ioutil", "path/filepath", "time"}

func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[strings.TrimPrefix(fields[0], module)] = fields[1:]
	}
	return all
}

func TestImportsPointOneWay(t *testing.T) {
	all := imports(t)
	for _, must := range []string{"internal/observe", "internal/cause", "internal/diagnose", "internal/sense/host"} {
		if _, ok := all[must]; !ok {
			t.Fatalf("package %s is gone: fix this test", must)
		}
	}
	for pkg, list := range all {
		for _, imp := range list {
			own, ours := strings.CutPrefix(imp, module)
			switch {
			case pkg == "internal/observe" && ours:
				t.Errorf("%s imports %s: it must import nothing of slowray", pkg, own)
			case strings.HasPrefix(pkg, "internal/sense/") && ours && !strings.HasPrefix(own, "internal/sense/") && own != "internal/observe" && own != "internal/bpf" && own != "internal/budget" && own != "internal/nl" && own != "internal/osthread" && own != "internal/printable":
				t.Errorf("%s imports %s: a reader never concludes", pkg, own)
			case (pkg == "internal/cause" || pkg == "internal/diagnose") && ours && !slices.Contains([]string{"internal/observe", "internal/figure", "internal/shell", "internal/cause"}, own):
				t.Errorf("%s imports %s: judging is pure", pkg, own)
			case pkg == "internal/cause" && slices.Contains(systemPackages, imp):
				t.Errorf("%s imports %s: a cause never touches the system", pkg, imp)
			case pkg == "internal/fleet/anomaly" && (slices.Contains(systemPackages, imp) || ours && own != "internal/observe" && own != "internal/fleet"):
				t.Errorf("%s imports %s: judging is pure", pkg, imp)
			case pkg == "internal/flame" && ours && !slices.Contains([]string{"internal/observe", "internal/figure", "internal/printable"}, own):
				t.Errorf("%s imports %s: drawing is pure", pkg, own)
			case pkg == "internal/shell" && (ours || slices.Contains(systemPackages, imp)):
				t.Errorf("%s imports %s: it only writes lines", pkg, imp)
			case (pkg == "internal/store" || strings.HasPrefix(pkg, "internal/fleet")) && own == "internal/report":
				t.Errorf("%s imports %s: text for people is above it", pkg, own)
			case pkg == "internal/schema" && ours && own != "internal/observe":
				t.Errorf("%s imports %s: all forms of a request are above it", pkg, own)
			case pkg == "internal/printable" && ours && own != "internal/figure":
				t.Errorf("%s imports %s", pkg, own)
			case (pkg == "internal/bpf" || pkg == "internal/nl" || pkg == "internal/osthread") && ours && own != "internal/osthread":
				t.Errorf("%s imports %s", pkg, own)
			}
		}
	}
}

// TestProductHasNoLab: slowray knows the lab's command line and the names of its
// incidents, and slowray-lab holds the rest.
func TestProductHasNoLab(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../cmd/slowray").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for pkg := range strings.Lines(string(out)) {
		own, ours := strings.CutPrefix(strings.TrimSpace(pkg), module)
		if ours && (strings.HasPrefix(own, "lab") || strings.HasSuffix(own, "test") || own == "internal/fleet/memory") {
			t.Errorf("cmd/slowray imports %s, which is no part of the product", own)
		}
	}
}
