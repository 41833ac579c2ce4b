package kerneltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/request"
)

var slowray = flag.String("slowray", "", "slowray `program` to be tested too")

// command runs slowray and returns what it printed.
func command(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	if *slowray == "" {
		t.Skip("SKIP: no -slowray: the command is NOT tested")
	}
	until := time.Now().Add(time.Minute)
	if end, ok := t.Deadline(); ok && os.Getenv("SLOWRAY_TEST_EMULATED") != "" {
		until = end.Add(-10 * time.Second) // a machine emulated for arm64 that has a quarter of a CPU takes minutes
	}
	ctx, stop := context.WithDeadline(t.Context(), until)
	defer stop()
	var out, err bytes.Buffer
	cmd := exec.CommandContext(ctx, *slowray, args...)
	cmd.Stdout, cmd.Stderr = &out, &err
	var exit *exec.ExitError
	if e := cmd.Run(); e != nil && !errors.As(e, &exit) {
		t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// TestWhy: the default report comes to its end on every kernel, and says what
// could not be checked there.
func TestWhy(t *testing.T) {
	stdout, stderr, status := command(t, "why", "--for", "2s", "--json")
	var report struct {
		RuledOut   []struct{ Cause string }          `json:"ruled_out"`
		NotChecked []struct{ Cause, Because string } `json:"not_checked"`
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("exit status %d: %v: %s%s", status, err, stdout, stderr)
	}
	// Where most could not be checked, and nothing was found, it could not judge.
	if undecided := len(report.RuledOut) < len(report.NotChecked); status != 0 && status != 1 && !(undecided && status == 2) {
		t.Errorf("exit status %d with %d causes ruled out and %d not checked: %s", status, len(report.RuledOut), len(report.NotChecked), stderr)
	}
	missing := map[string][]string{}
	for _, c := range report.NotChecked {
		missing[c.Because] = append(missing[c.Because], c.Cause)
	}
	for because, causes := range missing {
		t.Logf("missing: not checked: %s: %s", strings.Join(causes, ", "), because)
	}
	if len(report.RuledOut) == 0 {
		t.Error("nothing was ruled out")
	}
	for _, want := range lacking(t) {
		if missing[want] == nil {
			t.Errorf("not_checked lacks: %s", want)
		}
	}
}

// TestRequestsCommand: slowray requests runs, or says in one line why not.
func TestRequestsCommand(t *testing.T) {
	stdout, stderr, status := command(t, "requests", "--for", "1s")
	r, err := request.Start(request.Options{})
	if err != nil {
		if want := "slowray: " + err.Error() + "\n"; status != 2 || stderr != want || stdout != "" {
			t.Errorf("exit status %d, %q, %q; want %q", status, stdout, stderr, want)
		}
		return
	}
	r.Close()
	if status != 0 && status != 1 {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
}

// lacking is what the recorder says that it cannot do here.
func lacking(t *testing.T) []string {
	t.Helper()
	r, err := request.Start(request.Options{})
	if err != nil {
		return []string{err.Error()}
	}
	defer r.Close()
	return r.Stats().Missing
}
