package phpfpm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"github.com/slowray/slowray/internal/sense/host"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func findInstance(t *testing.T, pid int) *Instance {
	t.Helper()
	for range 100 {
		for _, in := range Discover(proctest.Processes(t), "/proc") {
			if in.PID == pid && len(in.listed) > 0 {
				return in
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("php-fpm %d was not discovered", pid)
	return nil
}

func command(t *testing.T, args ...string) *exec.Cmd {
	bin := proctest.Need(t, "php-fpm8.2")
	if os.Geteuid() == 0 {
		args = append(args, "-R")
	}
	return exec.Command(bin, append(args, "-F")...)
}

// asOwner is the user of a pool, which php-fpm asks for when it is root.
func asOwner() string {
	if os.Geteuid() == 0 {
		return "user = root\ngroup = root\n"
	}
	return ""
}

// fcgi asks a pool to run a script and reads the answer to its end.
func fcgi(addr, script string) ([]byte, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	var params []byte
	for k, v := range map[string]string{"SCRIPT_FILENAME": script, "SCRIPT_NAME": script, "REQUEST_METHOD": "GET", "REQUEST_URI": script} {
		params = append(params, byte(len(k)), byte(len(v)))
		params = append(params, k+v...)
	}
	record := func(kind byte, body []byte) []byte {
		h := []byte{1, kind, 0, 1, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
		return append(h, body...)
	}
	msg := record(1, []byte{0, 1, 0, 0, 0, 0, 0, 0})
	msg = append(msg, record(4, params)...)
	msg = append(msg, record(4, nil)...)
	msg = append(msg, record(5, nil)...)
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(c)
	return b.Bytes(), err
}

func TestRealPHPFPM(t *testing.T) {
	www, other := proctest.Port(t), proctest.Port(t)
	dir := t.TempDir()
	conf, pools := filepath.Join(dir, "fpm.conf"), filepath.Join(dir, "pool.d", "www.conf")
	if err := os.Mkdir(filepath.Join(dir, "pool.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, conf, fmt.Sprintf("[global]\nerror_log = %s/fpm.log ; the log\ndaemonize = no\ninclude=%s/pool.d/*.conf\n", dir, dir))
	write(t, pools, fmt.Sprintf(`[www]
%slisten = "127.0.0.1:%d"
listen.backlog = 64
pm = ondemand
pm.max_children = 3
request_slowlog_timeout = 1s
slowlog = %s/slow.log
request_terminate_timeout = 4s
php_admin_value[memory_limit] = 32M
env[HOSTNAME] = "x"
[other]
%slisten = 127.0.0.1:%d
pm = static
pm.max_children = 1
`, asOwner(), www, dir, asOwner(), other))
	sleep, kill := filepath.Join(dir, "sleep.php"), filepath.Join(dir, "kill.php")
	write(t, sleep, "<?php usleep(2000000); echo 'ok';")
	write(t, kill, "<?php posix_kill(getmypid(), 9);")

	cmd := command(t, "-y", conf)
	proctest.Start(t, cmd, other)
	in := findInstance(t, cmd.Process.Pid)
	in.Begin(enough())
	start := time.Now()
	done := make(chan error, 5)
	for range 5 {
		go func() { _, err := fcgi(addr(www), sleep); done <- err }()
		time.Sleep(100 * time.Millisecond) // ondemand forks for a connection that finds no idle child
	}
	fcgi(addr(other), kill)
	for range 30 {
		time.Sleep(50 * time.Millisecond)
		in.Sample(enough(), host.Default().Activity)
	}
	for range 5 {
		<-done
	}
	time.Sleep(100 * time.Millisecond)
	procs := proctest.Processes(t)
	for i := range procs {
		procs[i].UserSeconds = 0.5
	}
	got, gaps, losses := in.End(enough(), observe.Window{Start: start, Seconds: time.Since(start).Seconds()}, procs)
	if len(gaps) != 0 || len(losses) != 0 {
		t.Errorf("gaps %+v, losses %+v", gaps, losses)
	}
	if got.Config != conf || got.Root != "" || len(got.Pools) != 2 || len(got.Logs) != 2 || got.Logs[0].Problem != "" || got.Logs[0].Unparsed != 0 {
		t.Fatalf("%+v", got)
	}
	p := got.Pools[0]
	if len(p.Slow) != 1 || p.Slow[0].Function != "usleep()" || !strings.HasSuffix(p.Slow[0].Place, "sleep.php:1") || p.Slow[0].Count == 0 || p.SlowTimeout.Value != "1s" {
		t.Errorf("slow log %+v, over %+v", p.Slow, p.SlowTimeout)
	}
	line := 2 + strings.Count(asOwner(), "\n")
	at := func(v string, n int) observe.Setting { return observe.Setting{Value: v, File: pools, Line: line + n} }
	want := observe.FPMPool{Name: "www", Listen: at(addr(www), 0), ListenBacklog: at("64", 1), PM: at("ondemand", 2), MaxChildren: at("3", 3)}
	if d := cmp.Diff(want, observe.FPMPool{Name: p.Name, Listen: p.Listen, ListenBacklog: p.ListenBacklog, PM: p.PM, MaxChildren: p.MaxChildren}); d != "" {
		t.Error(d)
	}
	if p.Rounds != 30 || p.BusyPeak != 3 || len(p.Children) != 3 || p.CPUSeconds != 1.5 {
		t.Errorf("%+v", p)
	}
	if canSeeSyscalls(in) && p.AllBusyRounds < 20 {
		t.Errorf("all busy in %d of 30 rounds", p.AllBusyRounds)
	}
	wantKinds := map[string]int64{"max-children": 1, "slow-request": 5}
	if noPtrace(dir) {
		delete(wantKinds, "slow-request")
	}
	if d := cmp.Diff(wantKinds, kinds(p)); d != "" {
		t.Errorf("%s%s", d, readAll(dir))
	}
	if len(p.Log) > 0 && p.Log[0].Number != 3 {
		t.Errorf("number %+v", p.Log[0])
	}
	if d := cmp.Diff(map[string]int64{"child-exited": 1}, kinds(got.Pools[1])); d != "" {
		t.Errorf("%s%s", d, readAll(dir))
	}
}

// canSeeSyscalls: /proc/PID/syscall needs the right to trace.
func canSeeSyscalls(in *Instance) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", in.PID))
	return err == nil && len(b) > 0
}

// noPtrace: php-fpm logs a slow request only after it has traced it.
func noPtrace(dir string) bool { return strings.Contains(readAll(dir), "failed to ptrace") }

func readAll(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "fpm.log"))
	return string(b)
}

func kinds(p observe.FPMPool) map[string]int64 {
	m := map[string]int64{}
	for _, k := range p.Log {
		m[k.Kind] += k.Count
	}
	return m
}

func addr(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// TestRealPHPFPMOtherRoot runs php-fpm in a mount namespace where its
// configuration directory is another one.
func TestRealPHPFPMOtherRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED WITHOUT RIGHTS: a mount namespace needs root")
	}
	const etc = "/etc/php/8.2/fpm"
	if _, err := os.Stat(etc); err != nil {
		t.Skipf("SKIPPED WITHOUT A DIRECTORY: %v", err)
	}
	port, dir := proctest.Port(t), t.TempDir()
	write(t, filepath.Join(dir, "php-fpm.conf"), fmt.Sprintf("[global]\nerror_log = %s/log\n[api]\n%slisten = %d\npm = static\npm.max_children = 2\n", etc, asOwner(), port))
	inner := command(t)
	cmd := exec.Command("/bin/sh", "-c", `mount --bind "$1" `+etc+` && shift && exec "$@"`, "sh", dir)
	cmd.Args = append(cmd.Args, inner.Args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	proctest.Start(t, cmd, port)
	in := findInstance(t, cmd.Process.Pid)
	in.Begin(enough())
	start := time.Now()
	if err := syscall.Kill(childOf(t, in), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	got, gaps, _ := in.End(enough(), observe.Window{Start: start, Seconds: 1}, nil)
	if got.Config != etc+"/php-fpm.conf" || got.Root == "" || len(gaps) != 0 || len(got.Pools) != 1 {
		t.Fatalf("%+v, gaps %+v", got, gaps)
	}
	p := got.Pools[0]
	if p.Name != "api" || p.MaxChildren.Value != "2" || p.ListenBacklog.Value != "511" || !p.ListenBacklog.Default {
		t.Errorf("%+v", p)
	}
	if d := cmp.Diff(map[string]int64{"child-exited": 1}, kinds(p)); d != "" {
		t.Error(d)
	}
}

func childOf(t *testing.T, in *Instance) int {
	for range 100 {
		for pid, pool := range in.children(enough()) {
			if pool == "api" {
				return pid
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no child")
	return 0
}
