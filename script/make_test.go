package script_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Every target that is no file has a line of make help, and make alone still builds.
func TestMakeHelp(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	phony := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindSubmatch(makefile)
	if phony == nil {
		t.Fatal("no .PHONY")
	}
	help := exec.Command("make", "-s", "help")
	help.Dir = ".."
	out, err := help.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for target := range strings.FieldsSeq(string(phony[1])) {
		if !regexp.MustCompile(`(?m)^` + target + ` +\S`).Match(out) {
			t.Errorf("make help does not list %s:\n%s", target, out)
		}
	}
	plain := exec.Command("make", "-n")
	plain.Dir = ".."
	if out, err := plain.CombinedOutput(); err != nil || !strings.Contains(string(out), "built bin/slowray") {
		t.Errorf("make alone: %v\n%s", err, out)
	}
}
