package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// allIncidents, when set to anything, has TestIncidents plant those too that
// differ from another one only in the server or in where the fault is.
const allIncidents = "LAB_INCIDENTS"

// incidentTries is how often an incident is planted before it counts as a
// disagreement: what hurts is measured on a machine that others may be using.
const incidentTries = 3

// TestIncidents plants incidents and controls for real and lets slowray look:
// it must find what was measured to hurt, first what hurts most, and nothing
// else. There is one incident for each cause, and every control; the variants
// are run by make test-incidents and slowray lab run --all. At first a single
// fault is taken for what hurts, since measuring that takes half of the time; a
// run that does not agree is told in full, and has more tries with everything
// measured.
func TestIncidents(t *testing.T) {
	needLab(t)
	slowray := buildSlowray(t)
	planted := map[string]string{} // causes → the incident that plants them
	for _, i := range List() {
		t.Run(i.Name, func(t *testing.T) {
			if i.Unsteady != "" {
				t.Skipf("SKIP: %s: it is NOT judged", i.Unsteady)
			}
			key := strings.Join(i.Causes, " ")
			if other := planted[key]; key != "" && other != "" && os.Getenv(allIncidents) == "" {
				t.Skipf("SKIP: a variant of %s: make test-incidents runs it", other)
			}
			planted[key] = i.Name
			for try := 1; try <= incidentTries; try++ {
				var out bytes.Buffer
				result, err := Run(context.Background(), i.Name, Options{Slowray: []string{slowray}, Window: testWindow, Brief: true, Declared: try == 1 && os.Getenv(allIncidents) == "", Out: &out})
				if err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				if result.OK {
					return
				}
				fmt.Fprintf(os.Stderr, "%s, try %d: planted and found do not agree:\n%s", i.Name, try, out.String())
			}
			t.Errorf("planted and found do not agree, %d times", incidentTries)
		})
	}
}
