package uwsgi

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

func TestINI(t *testing.T) {
	dir := t.TempDir()
	text := "[other]\nprocesses = 99\n[uwsgi]\n; comment\nworkers = 4\nthreads=2\nlisten = 256\nsocket = /run/app.sock\nhttp-socket = :8080\nharakiri = 20\nini = more.ini\n"
	if err := os.WriteFile(filepath.Join(dir, "app.ini"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b := budget.New(context.Background(), budget.Limits{Wall: time.Minute})
	in := &pool.Instance{Root: rootfs.At(dir, b), Budget: b, ProcRoot: dir}
	c := &settings{in: in, b: b, values: map[string][]observe.Setting{}}
	c.ini("/app.ini")
	c.fill()
	at := func(v string, line int) observe.Setting {
		return observe.Setting{Value: v, File: "/app.ini", Line: line}
	}
	want := []observe.WorkerPool{{Name: "workers", Knob: "processes", Limit: 8, Threads: 2, Setting: at("4", 5), Timeout: at("20", 10),
		Listens: []observe.AppListen{{Path: "/run/app.sock", Backlog: at("256", 7)}, {Port: 8080, Backlog: at("256", 7)}}}}
	if d := cmp.Diff(want, in.Out.Pools); d != "" {
		t.Error(d)
	}
	if in.Out.Config != "/app.ini" {
		t.Error(in.Out.Config)
	}
}

func TestClassify(t *testing.T) {
	for line, want := range map[string]string{
		`Sun Nov 22 00:00:00 2026 - *** uWSGI listen queue of socket "127.0.0.1:8102" (fd: 3) full !!! (21/20) ***`: KindListenFull,
		"Sun Nov 22 00:00:00 2026 - *** HARAKIRI ON WORKER 1 (pid: 12, try: 1) ***":                                 KindHarakiri,
		"[pid: 7] 10.0.0.1 () GET /listen queue full !!!":                                                           "",
		"": "",
	} {
		if got, _ := classify([]byte(line)); got != want {
			t.Errorf("%q is %q", line, got)
		}
	}
	if _, n := classify([]byte(`*** uWSGI listen queue of socket "x" (fd: 3) full !!! (21/20) ***`)); n != 21 {
		t.Errorf("figure %d", n)
	}
}
