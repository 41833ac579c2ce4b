package lab

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// buildSlowray builds the program under test.
func buildSlowray(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "slowray")
	build := exec.Command("go", "build", "-o", exe, "../cmd/slowray")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exe
}

// TestIncidents plants every incident and control for real and lets slowray
// look: it must find what was measured to hurt, first what hurts most, and
// nothing else.
func TestIncidents(t *testing.T) {
	needLab(t)
	slowray := buildSlowray(t)
	for _, i := range List() {
		t.Run(i.Name, func(t *testing.T) {
			var out bytes.Buffer
			result, err := Run(context.Background(), i.Name, Options{Slowray: []string{slowray}, Out: &out})
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if !result.OK {
				t.Errorf("planted and found do not agree:\n%s", out.String())
			}
		})
	}
}
