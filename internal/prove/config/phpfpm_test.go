package config

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"github.com/slowray/slowray/internal/sense/app/phpfpm"
)

func startFPM(t *testing.T) (pid, port int, dir string) {
	t.Helper()
	needRoot(t)
	bin := proctest.Need(t, "php-fpm8.2")
	port, dir = proctest.Port(t), t.TempDir()
	other := proctest.Port(t)
	write(t, filepath.Join(dir, "fpm.conf"), fmt.Sprintf("; main\n[global]\nerror_log = %s/fpm.log\ndaemonize = no\ninclude=%s/pool.d/*.conf\n", dir, dir))
	write(t, filepath.Join(dir, "pool.d", "www.conf"), fmt.Sprintf("[www]\nuser = root\ngroup = root\nlisten = 127.0.0.1:%d\nlisten.backlog = 33\n"+
		"pm = static\npm.max_children = 3 ; few\n", port))
	write(t, filepath.Join(dir, "pool.d", "z.conf"), fmt.Sprintf("[other]\nuser=root\ngroup=root\nlisten=127.0.0.1:%d\npm=dynamic\npm.max_children=4\n"+
		"pm.start_servers=2\npm.min_spare_servers=1\npm.max_spare_servers=3\n", other))
	cmd := exec.Command(bin, "-F", "-R", "-y", filepath.Join(dir, "fpm.conf"))
	proctest.Start(t, cmd, other)
	waitChildren(t, cmd.Process.Pid, 3)
	ready(t, "php-fpm", cmd.Process.Pid)
	return cmd.Process.Pid, port, dir
}

func childrenOf(t *testing.T, master int, pool string) []int {
	t.Helper()
	for _, in := range phpfpm.Discover(processOf(master), "/proc") {
		return in.Children()[pool]
	}
	return nil
}

// waitForChildren waits until the static pool has so many children: on a busy
// machine those that it had end a while after the reload.
func waitForChildren(t *testing.T, pid, want int) {
	t.Helper()
	n := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n = len(childrenOf(t, pid, "www")); n == want {
			return
		}
	}
	t.Errorf("%d children of the static pool, want %d", n, want)
}

func TestPHPFPM(t *testing.T) {
	pid, port, dir := startFPM(t)
	www, other := filepath.Join(dir, "pool.d", "www.conf"), filepath.Join(dir, "pool.d", "z.conf")
	was := []snapshot{take(t, www), take(t, other)}
	changes := []cause.Change{
		{Kind: cause.ChangeConfig, Server: "php-fpm", PID: pid, Name: "pm.max_children", Value: "7", Was: "3", Path: www, Line: 7},
		{Kind: cause.ChangeConfig, Server: "php-fpm", PID: pid, Name: "pm.max_requests", Value: "5000", Path: www, Section: "www"},
		{Kind: cause.ChangeConfig, Server: "php-fpm", PID: pid, Name: "pm.max_children", Value: "9", Was: "4", Path: other, Line: 6},
		{Kind: cause.ChangeConfig, Server: "php-fpm", PID: pid, Name: "pm.start_servers", Value: "3", Was: "2", Path: other, Line: 7},
	}
	var undos []func()
	for i := range changes {
		c := &changes[i]
		s := prepare(t, c)
		apply(t, c, s)
		undos = append(undos, func() { undo(t, c, s) })
	}
	waitForChildren(t, pid, 7)
	if got := take(t, www).text; !strings.HasSuffix(got, "pm.max_children = 7 ; few\npm.max_requests = 5000\n") {
		t.Errorf("the file is %q", got)
	}
	for i := len(undos) - 1; i >= 0; i-- {
		undos[i]()
	}
	waitForChildren(t, pid, 3)
	for i, f := range []string{www, other} {
		if got := take(t, f); got != was[i] {
			t.Errorf("after undoing: %+v, want %+v", got, was[i])
		}
	}

	// An inherited socket does not listen again.
	c := cause.Change{Kind: cause.ChangeConfig, Server: "php-fpm", PID: pid, Name: "listen.backlog", Value: "4096", Was: "33", Path: www, Line: 5}
	_, err := files{}.Prepare(&c)
	refused(t, err, "only when it is started", "backlog")
	if n := backlog(t, port); n != 33 {
		t.Errorf("backlog %d", n)
	}

	// php-fpm's own test refuses more spare servers than children, before the file
	// is touched and without a reload: the next change is possible.
	c = cause.Change{Kind: cause.ChangeConfig, Server: "php-fpm", PID: pid, Name: "pm.max_spare_servers", Value: "50", Was: "3", Path: other, Line: 9}
	s := prepare(t, &c)
	before := childrenOf(t, pid, "www")
	refused(t, files{}.Apply(&c, s), "cannot be greater than pm.max_children", "is as it was")
	if got := take(t, other); got != was[1] {
		t.Errorf("after a refusal: %+v, want %+v", got, was[1])
	}
	if after := childrenOf(t, pid, "www"); len(gone2(before, after)) != 0 {
		t.Errorf("children %v, were %v: it was reloaded", after, before)
	}
	prepare(t, &changes[0])
}

func gone2(before, after []int) (missing []int) {
	for _, b := range before {
		found := false
		for _, a := range after {
			found = found || a == b
		}
		if !found {
			missing = append(missing, b)
		}
	}
	return missing
}

// TestRestarted: the server was started again, with the changed file, before it
// is undone.
func TestRestarted(t *testing.T) {
	slow(t)
	needRoot(t)
	bin := proctest.Need(t, "php-fpm8.2")
	dir, port := t.TempDir(), proctest.Port(t)
	conf := filepath.Join(dir, "fpm.conf")
	write(t, conf, fmt.Sprintf("[global]\nerror_log = %s/fpm.log\n[www]\nuser = root\ngroup = root\nlisten = 127.0.0.1:%d\npm = static\npm.max_children = 2\n", dir, port))
	was := take(t, conf)
	first := exec.Command(bin, "-F", "-R", "-y", conf)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	waitChildren(t, first.Process.Pid, 2)
	c := cause.Change{Kind: cause.ChangeConfig, Server: "php-fpm", PID: first.Process.Pid, Name: "pm.max_children", Value: "4", Was: "2", Path: conf, Line: 8}
	s := prepare(t, &c)
	apply(t, &c, s)
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if holds, gone, now, err := (files{}).Holds(&c, s); !holds || gone || err != nil {
		t.Errorf("without a server: holds %v, gone %v, now %q, %v", holds, gone, now, err)
	}
	second := exec.Command(bin, "-F", "-R", "-y", conf)
	proctest.Start(t, second, port)
	waitChildren(t, second.Process.Pid, 4)
	undo(t, &c, s)
	if n := len(childrenOf(t, second.Process.Pid, "www")); n != 2 {
		t.Errorf("%d children after undoing, want 2", n)
	}
	if got := take(t, conf); got != was {
		t.Errorf("%+v, want %+v", got, was)
	}
}

func waitChildren(t *testing.T, pid, n int) {
	t.Helper()
	for range 500 {
		if len(childrenOf(t, pid, "www")) == n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %d children", n)
}
