package gunicorn

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

func TestOptions(t *testing.T) {
	line := func(v string) observe.Setting { return observe.Setting{Value: v, File: "line"} }
	got := parseOptions([]string{"python3", "gunicorn", "-w4", "--threads=2", "-b", "0.0.0.0:80", "--bind", "unix:/run/g.sock", "-k", "sync", "app:app", "-t"}, "line")
	want := map[string][]observe.Setting{"workers": {line("4")}, "threads": {line("2")}, "bind": {line("0.0.0.0:80"), line("unix:/run/g.sock")},
		"worker_class": {line("sync")}, "timeout": {line("")}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	p := workers(got)
	if p.Limit != 8 || p.Threads != 2 || len(p.Listens) != 2 || p.Listens[0].Port != 80 || p.Listens[1].Path != "/run/g.sock" {
		t.Errorf("%+v", p)
	}
}

func TestConfigurationFile(t *testing.T) {
	text := "import multiprocessing\nworkers = 3  # three\nbind = [\"127.0.0.1:8000\", 'unix:/run/x']\nthreads = multiprocessing.cpu_count()\ntimeout=5\nif x:\n    workers = 9\n"
	var computed []string
	got := parseFile(enough(), text, "/c.py", func(_ int, name string) { computed = append(computed, name) })
	at := func(v string, line int) observe.Setting { return observe.Setting{Value: v, File: "/c.py", Line: line} }
	want := map[string][]observe.Setting{"workers": {at("3", 2)}, "bind": {at("127.0.0.1:8000", 3), at("unix:/run/x", 3)}, "timeout": {at("5", 5)}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"threads"}, computed); d != "" {
		t.Error(d)
	}
}

func TestEventLoopsHaveNoLimit(t *testing.T) {
	if p := workers(parseOptions([]string{"-k", "gevent", "-w", "4"}, "")); p.Limit != 0 {
		t.Errorf("limit %d", p.Limit)
	}
}

func TestDiscovery(t *testing.T) {
	for cmdline, want := range map[string]bool{
		"/usr/bin/python3 /usr/bin/gunicorn -w 2 app:app": true, "gunicorn: master [app:app]": true, "python3 -m gunicorn app:app": true,
		"/venv/bin/gunicorn app": true, "vim gunicorn": false, "python3 app.py gunicorn.py": false, "": false,
	} {
		if got := isGunicorn(&observe.Process{Cmdline: cmdline}); got != want {
			t.Errorf("%q: %v", cmdline, got)
		}
	}
}

func TestClassify(t *testing.T) {
	for line, want := range map[string]string{
		"[2026-11-22 00:00:00 +0000] [21770] [CRITICAL] WORKER TIMEOUT (pid:21773)":                      KindWorkerTimeout,
		"[2026-11-22 00:00:00 +0000] [21770] [WARNING] Worker with pid 7 was terminated due to signal 9": KindWorkerKilled,
		"[2026-11-22 00:00:00 +0000] [21770] [INFO] Booting worker with pid: 21773":                      "",
		"": "",
	} {
		if got, _ := classify([]byte(line)); got != want {
			t.Errorf("%q is %q", line, got)
		}
	}
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute, Bytes: 1 << 30})
}
