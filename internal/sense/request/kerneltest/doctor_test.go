package kerneltest

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/callerror"
	"github.com/slowray/slowray/internal/sense/callstack"
	"github.com/slowray/slowray/internal/sense/connect"
	"github.com/slowray/slowray/internal/sense/drop"
	"github.com/slowray/slowray/internal/sense/flow"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/sense/socket"
	"github.com/slowray/slowray/internal/sense/stack"
)

// TestDoctor: slowray doctor tells the truth on every kernel: of each object
// what loading it here and now tells, and of the causes what slowray why tells.
func TestDoctor(t *testing.T) {
	stdout, stderr, status := command(t, "doctor", "--for", "1s", "--json")
	if status != 0 && status != 1 {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	var checkup struct {
		Parts []struct {
			Name, Object, State string
			Because             []string
		}
		Causes struct {
			Known, Checked int
			NotChecked     []string `json:"not_checked"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &checkup); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	said := map[string]string{}
	complete := true
	for _, p := range checkup.Parts {
		if p.Object != "" && said[p.Object] == "" {
			said[p.Object] = p.State
		}
		complete = complete && p.State == "works"
		for _, because := range p.Because {
			t.Logf("missing: %s, %s: %s", p.Name, p.State, because)
		}
		if (p.State == "works") != (len(p.Because) == 0) {
			t.Errorf("%s: %s, because %q", p.Name, p.State, p.Because)
		}
	}
	for object, load := range map[string]func() error{
		"request": func() error { return closed(request.Start(request.Options{Split: true})) },
		"connect": func() error { return closed(connect.Start(nil)) },
		"socket":  func() error { return closed(socket.Open()) },
		"profile": func() error { return closed(stack.Start()) },
		"flow":    func() error { return closed(flow.Load()) },
		"callerror": func() error {
			w, err := callerror.Load("/proc")
			if err == nil {
				w.Close()
			}
			return err
		},
		"drop": func() error {
			w, err := drop.Start()
			if err == nil {
				return w.Close()
			}
			return err
		},
		"stacks": func() error {
			_, err := callstack.Record(t.Context(), 50*time.Millisecond, callstack.Options{PIDs: []int{os.Getpid()}, OnCPU: true})
			return err
		},
	} {
		switch err := load(); {
		case err != nil && said[object] != "missing":
			t.Errorf("%s is said to be %q, but: %v", object, said[object], err)
		case err == nil && said[object] != "works" && said[object] != "partly":
			t.Errorf("%s is said to be %q, but it loads", object, said[object])
		}
	}
	if complete != (status == 0) && len(checkup.Causes.NotChecked) == 0 {
		t.Errorf("exit status %d, though everything works: %v", status, complete)
	}
	// What could not be read there cannot be read by why.
	stdout, _, _ = command(t, "why", "--for", "1s", "--json")
	var report struct {
		NotChecked []struct{ Cause, Because string } `json:"not_checked"`
		RuledOut   []struct{ Cause string }          `json:"ruled_out"`
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	var not []string
	for _, c := range report.NotChecked {
		not = append(not, c.Cause)
	}
	for _, id := range checkup.Causes.NotChecked {
		if !slices.Contains(not, id) {
			t.Errorf("%s: doctor says that it cannot be checked, why checks it", id)
		}
	}
	for _, c := range report.RuledOut {
		if slices.Contains(checkup.Causes.NotChecked, c.Cause) {
			t.Errorf("%s: doctor says that it cannot be checked, why rules it out", c.Cause)
		}
	}
	t.Logf("%d of %d causes can be checked; not: %s", checkup.Causes.Checked, checkup.Causes.Known, strings.Join(checkup.Causes.NotChecked, ", "))
}

// closed is the error of starting something, which is closed again.
func closed[T interface{ Close() }](v T, err error) error {
	if err == nil {
		v.Close()
	}
	return err
}
