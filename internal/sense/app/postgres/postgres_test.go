package postgres

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute})
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"postgresql.conf":      "max_connections = 100\t# (change requires restart)\nlog_line_prefix = '%m [%p] it''s '\ninclude_dir 'conf.d'\n#port = 1\nmax_wal_size 2GB\n",
		"conf.d/a.conf":        "max_connections = 50\n",
		"conf.d/b.txt":         "max_connections = 1\n",
		"postgresql.auto.conf": "log_min_duration_statement = '250ms'\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := &config{b: enough(), root: rootfs.At(dir, enough()), values: map[string]observe.Setting{}}
	for _, f := range []string{"/postgresql.conf", "/postgresql.auto.conf"} {
		if err := c.read(f, 0); err != nil {
			t.Fatal(err)
		}
	}
	c.arguments([]string{"-D", "/data", "-p", "5433", "-c", "deadlock_timeout=2s", "--log-lock-waits=on", "-N20"})
	for name, want := range map[string]observe.Setting{
		"max_connections":            {Value: "20", File: commandLine},
		"log_line_prefix":            {Value: "%m [%p] it's ", File: "/postgresql.conf", Line: 2},
		"log_min_duration_statement": {Value: "250ms", File: "/postgresql.auto.conf", Line: 1},
		"max_wal_size":               {Value: "2GB", File: "/postgresql.conf", Line: 5},
		"port":                       {Value: "5433", File: commandLine},
		"deadlock_timeout":           {Value: "2s", File: commandLine},
		"log_lock_waits":             {Value: "on", File: commandLine},
	} {
		if got := c.get(name, ""); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for text, want := range map[string]float64{"250ms": 250, "2s": 2000, "-1": -1, "0": 0, "1min": 60000, "100us": 0.1} {
		if got, ok := milliseconds(text); !ok || got != want {
			t.Errorf("milliseconds(%q) = %v, %v", text, got, ok)
		}
	}
}

func TestPrefix(t *testing.T) {
	at := time.Date(2026, 11, 22, 0, 11, 26, 782e6, time.UTC).UnixNano()
	for _, c := range []struct {
		format, line, severity, message string
		want                            head
	}{
		{"%m [%p] ", "2026-11-22 00:11:26.782 UTC [14751] LOG:  duration: 12 ms", "LOG", "duration: 12 ms", head{atNS: at, pid: 14751}},
		{"%m [%p] %q%u@%d ", "2026-11-22 00:11:26.782 UTC [14751] app@shop FATAL:  sorry, too many clients already", "FATAL", "sorry, too many clients already", head{atNS: at, pid: 14751}},
		{"%m [%p] %q%u@%d ", "2026-11-22 00:11:26.782 UTC [14751] LOG:  checkpoint starting: time", "LOG", "checkpoint starting: time", head{atNS: at, pid: 14751}},
		{"%n %p %r ", "1795306286.782 14751 10.1.2.3(41234) ERROR:  x", "ERROR", "x", head{atNS: at, pid: 14751, client: netip.MustParseAddr("10.1.2.3"), port: 41234}},
		{"%t:%h:", "2026-11-22 00:11:26 UTC:10.1.2.3:LOG:  y", "LOG", "y", head{atNS: at - 782e6, whole: true, client: netip.MustParseAddr("10.1.2.3")}},
		{"", "LOG:  z", "LOG", "z", head{}},
	} {
		h, severity, message, ok := newPrefix(c.format).parse(c.line)
		if !ok || severity != c.severity || message != c.message || h != c.want {
			t.Errorf("%q of %q: %+v %q %q %v, want %+v", c.format, c.line, h, severity, message, ok, c.want)
		}
	}
	if _, _, _, ok := newPrefix("%m ").parse("\tFROM booking"); ok {
		t.Error("the rest of a statement is taken for a line")
	}
}

func FuzzLine(f *testing.F) {
	f.Add("%m [%p] %q%r ", "2026-11-22 00:11:26.782 UTC [14751] LOG:  duration: 12.5 ms  execute <unnamed>: SELECT 1")
	f.Fuzz(func(t *testing.T, format, line string) {
		_, severity, message, _ := newPrefix(format).parse(line)
		classify(severity, message)
		if took, _, ok := statement(message); ok && took < 0 {
			t.Errorf("%q took %d", message, took)
		}
		title(line)
		assignment(line)
	})
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		severity, message, kind string
		figure                  int
	}{
		{"FATAL", "remaining connection slots are reserved for non-replication superuser connections", KindTooManyClients, 0},
		{"FATAL", "password authentication failed for user \"sorry, too many clients already\"", "", 0},
		{"LOG", "process 14751 still waiting for ShareLock on transaction 726 after 1000.109 ms", KindStillWaiting, 1000},
		{"LOG", "checkpoints are occurring too frequently (3 seconds apart)", KindCheckpointsFrequent, 3},
		{"ERROR", "deadlock detected", KindDeadlock, 0},
		{"LOG", "checkpoint complete: wrote 3 buffers", "", 0},
	} {
		if kind, figure := classify(c.severity, c.message); kind != c.kind || figure != c.figure {
			t.Errorf("%s: %q %d", c.message, kind, figure)
		}
	}
	for message, want := range map[string]string{
		"duration: 12.345 ms  statement: SELECT 'a: b'":      "SELECT 'a: b'",
		"duration: 1696.614 ms  execute <unnamed>: UPDATE b": "UPDATE b",
	} {
		if took, sql, ok := statement(message); !ok || sql != want || took < 12e6 {
			t.Errorf("%s: %d %q", message, took, sql)
		}
	}
}

func TestTitle(t *testing.T) {
	for text, want := range map[string]observe.Session{
		"postgres: postgres lab 127.0.0.1(54274) UPDATE waiting":     {User: "postgres", Name: "lab", Client: "127.0.0.1(54274)", Doing: "UPDATE"},
		"postgres: 15/main: app shop [local] idle in transaction":    {User: "app", Name: "shop", Client: "[local]", Doing: "idle in transaction"},
		"postgres: app shop ::1(5123) idle in transaction (aborted)": {User: "app", Name: "shop", Client: "::1(5123)", Doing: "idle in transaction (aborted)"},
	} {
		got, waiting, ok := title(text)
		if !ok || got != want || waiting != (want.Doing == "UPDATE") {
			t.Errorf("%s: %+v %v %v", text, got, waiting, ok)
		}
	}
	for _, text := range []string{"postgres: checkpointer ", "postgres: 15/main: walwriter", "bash", "postgres: autovacuum worker lab"} {
		if s, _, ok := title(text); ok {
			t.Errorf("%s is taken for a session: %+v", text, s)
		}
	}
}

// TestBackendOfContainer: what the log calls a process is its number in the
// server's own pid namespace.
func TestBackendOfContainer(t *testing.T) {
	proc := t.TempDir()
	for pid, numbers := range map[string]string{"900": "900\t1", "901": "901\t45", "902": "902\t46", "77": "77"} {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "status"), []byte("Name:\tpostgres\nNSpid:\t"+numbers+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pid, want := range map[int]map[int]int{900: {45: 901, 46: 902, 901: 0}, 77: {45: 45}} {
		s := New(observe.Process{PID: pid}, proc, 1)
		s.Begin(enough())
		s.number([]int{901, 902, 903})
		s.number([]int{902})
		for logged, pid := range want {
			if got := s.backend(logged); got != pid {
				t.Errorf("the server %d says %d: process %d, want %d", s.Out.PID, logged, got, pid)
			}
		}
	}
}
