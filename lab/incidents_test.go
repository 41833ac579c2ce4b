package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// testWindow is how long slowray looks at each incident: less than the default,
// because there are many.
const testWindow = 6 * time.Second

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
// nothing else. What hurts is measured on a machine that others may be using:
// a run that does not agree is told in full, and has one more try.
func TestIncidents(t *testing.T) {
	needLab(t)
	slowray := buildSlowray(t)
	for _, i := range List() {
		t.Run(i.Name, func(t *testing.T) {
			if i.Unsteady != "" {
				t.Skipf("SKIP: %s: it is NOT judged", i.Unsteady)
			}
			for try := 1; try <= 2; try++ {
				var out bytes.Buffer
				result, err := Run(context.Background(), i.Name, Options{Slowray: []string{slowray}, Window: testWindow, Brief: true, Out: &out})
				if err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				if result.OK {
					return
				}
				fmt.Fprintf(os.Stderr, "%s, try %d: planted and found do not agree:\n%s", i.Name, try, out.String())
			}
			t.Error("planted and found do not agree, twice")
		})
	}
}
