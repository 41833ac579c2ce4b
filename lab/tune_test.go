package lab

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// TestTune has slowray tune fix two faults for real, of which one hides the
// other: requests that find no port fail before the connections of nginx run short.
func TestTune(t *testing.T) {
	needLab(t)
	i := twoFaults(t)
	slowray := []string{buildSlowray(t)}
	for try := 1; try <= 3; try++ { // others may use the machine
		var out bytes.Buffer
		r, err := prepare(i, Options{Slowray: slowray, Out: &out})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		result, err := r.tune(t.Context(), TuneOptions{For: 200 * time.Second, // a third experiment: pools that sleep are tried, too
			Look: 3 * time.Second, Block: time.Second})
		r.lock.Release()
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		fixed := 0
		for _, f := range result.Faults {
			if f.Verdict != "" {
				fixed++
			}
		}
		if result.OK && fixed == 2 {
			return
		}
		t.Logf("try %d: %d of 2 faults fixed:\n%s", try, fixed, out.String())
	}
	t.Error("two faults are not fixed and undone as they should be, three times")
}

func TestTuneIsJudged(t *testing.T) {
	i, err := incident.Find("nginx-throughput")
	if err != nil {
		t.Fatal(err)
	}
	well := func() TuneResult {
		r := TuneResult{Seconds: 300, Report: TuneReport{Ending: "healthy"}}
		r.Healthy.Duration, r.Start.Duration, r.End.Duration, r.Undone.Duration = time.Second, time.Second, time.Second, time.Second
		r.Healthy.Requests, r.Start.Requests, r.End.Requests, r.Undone.Requests = 9000, 100, 8000, 90
		for _, f := range i.Faults {
			if !f.Decoy && f.Cause != "time-wait-port-search" {
				r.Report.Steps = append(r.Report.Steps, TuneStep{Cause: f.Cause, Verdict: "proved", Kept: true})
			}
		}
		return r
	}
	tests := []struct {
		name   string
		spoil  func(*TuneResult)
		reason string // empty: none
	}{
		{"all well", func(*TuneResult) {}, ""},
		{"too slow", func(r *TuneResult) { r.Seconds = 721 }, "may take 720 s"},
		{"errors left", func(r *TuneResult) { r.End.Timeout = 3 }, "3 timeouts"},
		{"errors left and a fault", func(r *TuneResult) { r.End.Read, r.Report.Steps = 5, r.Report.Steps[:4] }, "worker-connections was not fixed"},
		{"not enough", func(r *TuneResult) { r.End.Requests = 1900 }, "not 20 times"},
		{"far from healthy", func(r *TuneResult) { r.End.Requests = 2100 }, "healthy stack's"},
		{"decoy", func(r *TuneResult) { r.Set = []string{`sysctl net.ipv4.tcp_fin_timeout: "60", was "3600"`} }, "a decoy"},
		{"kept without proof", func(r *TuneResult) { r.Report.Steps[0].Verdict = "no-effect" }, "was kept with the verdict"},
		{"not undone", func(r *TuneResult) { r.Undone.Requests = 7900 }, "something is not undone"},
		{"harm", func(r *TuneResult) { r.Report.Ending, r.Report.Text = "harm", "Stopped: it got worse." }, "it got worse"},
	}
	for _, tt := range tests {
		r := well()
		tt.spoil(&r)
		r.judge(i, TuneOptions{For: TuneLimit})
		if reasons := strings.Join(r.Reasons, "; "); r.OK != (tt.reason == "") || !strings.Contains(reasons, tt.reason) {
			t.Errorf("%s: ok %v, reasons %q, want %q", tt.name, r.OK, reasons, tt.reason)
		}
	}
}

func TestStateTellsWhatDiffers(t *testing.T) {
	before := state{"file a": "x\ny\n", "sysctl b": "1", "file gone": "z", "same": "s"}
	now := state{"file a": "x\nq\n", "sysctl b": "2", "file new": "", "sysctl new": "of a module", "same": "s"}
	got := strings.Join(before.differences(now), "; ")
	if want := `file a: "q", was "y"; file gone is gone; sysctl b: "2", was "1"; file new is new`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// twoFaults are too few ports, and too few connections of nginx.
func twoFaults(t *testing.T) incident.Incident {
	t.Helper()
	i, err := incident.Find("ephemeral-ports")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := incident.Find("nginx-throughput")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range whole.Faults {
		if f.Cause == "nginx-worker-connections" {
			i.Faults = append(i.Faults, f)
		}
	}
	if i.Name, i.Gain = "two faults", 2; len(i.Faults) != 2 {
		t.Fatalf("faults %v", i.Faults)
	}
	return i
}
