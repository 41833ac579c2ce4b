package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runEnv makes the test binary a run of the lab that tests can kill.
const runEnv = "TEST_RUN_INCIDENT"

func TestMain(m *testing.M) {
	InitMain()
	if name := os.Getenv(runEnv); name != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
		_, err := Run(ctx, name, Options{TruthOnly: true})
		stop()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// needLab skips, loudly, where an incident cannot run.
func needLab(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: incidents take seconds (-short)")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: incidents need root")
	}
	for _, i := range List() {
		for _, p := range i.Needs {
			if !installed(p) {
				t.Skipf("SKIPPED: incidents need the package %s", p)
			}
		}
	}
}

func TestListIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range List() {
		if i.Name == "" || i.Summary == "" || seen[i.Name] {
			t.Errorf("%+v: no name, no summary, or twice", i)
		}
		seen[i.Name] = true
		if (i.Control || i.Phases) != (len(i.Causes) == 0) {
			t.Errorf("%s: control %v with causes %v", i.Name, i.Control, i.Causes)
		}
	}
	if !seen["nginx-throughput"] || len(seen) < 20 {
		t.Errorf("incidents: %v", seen)
	}
}

func TestUnknownIncident(t *testing.T) {
	_, err := Run(t.Context(), "healthy-idel", Options{})
	if err == nil || !strings.Contains(err.Error(), "healthy-idle") || !strings.Contains(err.Error(), "slowray lab list") {
		t.Errorf("error %v does not say what was meant, and where all are listed", err)
	}
}

// fakeSlowray is a program that waits as long as slowray looks and then prints
// a report with these findings.
func fakeSlowray(t *testing.T, status int, findings ...Finding) []string {
	t.Helper()
	list := []map[string]any{}
	for _, f := range findings {
		list = append(list, map[string]any{"cause": f.Cause, "role": f.Role, "title": "a title", "subject": f.Subject})
	}
	report, err := json.Marshal(map[string]any{"schema": "slowray.report/1", "findings": list})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "slowray")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1 $2 $3\" = 'why --json --for' ] || exit 2\nsleep ${4%%s}\ncat <<'E'\n%s\nE\nexit %d\n", report, status)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

func TestRunJudges(t *testing.T) {
	needLab(t)
	full := Finding{Cause: "disk-full", Role: "cause"}
	tests := []struct {
		incident string
		slowray  []string
		reason   string // in a mismatch; empty = none
	}{
		{"late-acks", fakeSlowray(t, 0), ""},
		{"late-acks", fakeSlowray(t, 1, full), "nothing harmful is injected"},
		{"disk-full", fakeSlowray(t, 1, full), ""},
		{"disk-full", fakeSlowray(t, 0), "hurts"},
		{"late-acks", fakeSlowray(t, 2), "exit status 2"},
	}
	for _, tt := range tests {
		t.Run(tt.incident+" "+tt.reason, func(t *testing.T) {
			var out bytes.Buffer
			r, err := Run(t.Context(), tt.incident, Options{Slowray: tt.slowray, Out: &out, Window: quick * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			reasons := strings.Join(r.Steps[0].Reasons, "; ")
			if r.OK != (tt.reason == "") || !strings.Contains(reasons, tt.reason) {
				t.Errorf("ok %v, reasons %q, want %q\n%s", r.OK, reasons, tt.reason, &out)
			}
		})
	}
}

const maxPath = "/proc/sys/net/netfilter/nf_conntrack_max"

func readMax(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(maxPath)
	if err != nil {
		t.Skip("SKIPPED: no connection tracking: ", err)
	}
	return string(data)
}

// injected is a run of the lab in another process, with its fault in place.
type injectedRun struct {
	cmd       *exec.Cmd
	init      int    // its sandbox
	pidns     string // link of the sandbox's process namespace
	dir       string
	healthy   string // nf_conntrack_max before
	waitAfter chan error
}

func injectInOtherProcess(t *testing.T) *injectedRun {
	t.Helper()
	needLab(t)
	if err := Clean(); err != nil { // waits for another run
		t.Fatal(err)
	}
	p := &injectedRun{healthy: readMax(t), waitAfter: make(chan error, 1)}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), runEnv+"=conntrack-full")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.waitAfter <- p.cmd.Wait() }()
	t.Cleanup(func() { p.cmd.Process.Kill() })
	for range 3600 { // another run of the lab may come first
		if readMax(t) != p.healthy && p.find() && countIn(p.pidns) > 10 {
			return p
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("not within 3 minutes: the fault is injected and under load")
	return nil
}

// find finds the sandbox's init, which is the run's child, and its directory.
func (p *injectedRun) find() bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, _ := os.ReadFile(path)
		if _, parent := parseCPUTimes(data); parent == strconv.Itoa(p.cmd.Process.Pid) {
			p.init, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			p.pidns, _ = os.Readlink(filepath.Dir(path) + "/ns/pid")
		}
	}
	for _, data := range journalsOnDisk() {
		var journal struct {
			PID int
			Dir string
		}
		if json.Unmarshal(data, &journal) == nil && journal.PID == p.cmd.Process.Pid {
			p.dir = journal.Dir
		}
	}
	return p.init != 0 && p.dir != ""
}

// countIn counts the processes in a process namespace.
func countIn(pidns string) int {
	n := 0
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, l := range links {
		if ns, err := os.Readlink(l); err == nil && ns == pidns {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 200 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not within 10 s: %s", what)
}

func (p *injectedRun) checkGone(t *testing.T) {
	t.Helper()
	eventually(t, "nf_conntrack_max is back", func() bool { return readMax(t) == p.healthy })
	eventually(t, "no process is left", func() bool { return countIn(p.pidns) == 0 })
	eventually(t, "directory is gone", func() bool { _, err := os.Stat(p.dir); return err != nil })
	eventually(t, "journal is gone", func() bool {
		// Another run's may be there.
		return !slices.ContainsFunc(journalsOnDisk(), func(data []byte) bool { return bytes.Contains(data, []byte(p.dir)) })
	})
}

func journalsOnDisk() [][]byte {
	var all [][]byte
	paths, _ := filepath.Glob("/run/slowray-lab/journal*.json")
	for _, path := range paths {
		if data, err := os.ReadFile(path); err == nil {
			all = append(all, data)
		}
	}
	return all
}

func TestRunKilled(t *testing.T) {
	p := injectInOtherProcess(t)
	p.cmd.Process.Kill()
	p.checkGone(t)
}

func TestRunInterrupted(t *testing.T) {
	p := injectInOtherProcess(t)
	p.cmd.Process.Signal(syscall.SIGINT)
	<-p.waitAfter
	p.checkGone(t)
}

func TestInitKilled(t *testing.T) {
	p := injectInOtherProcess(t)
	syscall.Kill(p.init, syscall.SIGKILL)
	select {
	case <-p.waitAfter:
	case <-time.After(10 * time.Second):
		t.Error("the run goes on without its sandbox")
	}
	p.checkGone(t)
}

func TestBothKilled(t *testing.T) {
	p := injectInOtherProcess(t)
	// Stopped first, neither can take anything back before it is killed.
	syscall.Kill(p.init, syscall.SIGSTOP)
	p.cmd.Process.Signal(syscall.SIGSTOP)
	syscall.Kill(p.init, syscall.SIGKILL)
	p.cmd.Process.Kill()
	<-p.waitAfter
	eventually(t, "no process is left", func() bool { return countIn(p.pidns) == 0 })
	if readMax(t) == p.healthy {
		t.Log("a waiting run of the lab has repaired it already")
	}
	if err := Clean(); err != nil {
		t.Error(err)
	}
	p.checkGone(t)
}
