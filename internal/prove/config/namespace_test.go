package config

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"golang.org/x/sys/unix"
)

// TestContainer: a server in mount, network and process namespaces of its own,
// with fewer rights, whose main file is a mount of a single file, as Docker does
// it. Renaming over that would take the mount away.
func TestContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	needRoot(t)
	bin, unshare := proctest.Need(t, "nginx"), proctest.Need(t, "unshare")
	dir := t.TempDir()
	for _, d := range []string{"inside/tmp", "inside/logs", "outside"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "inside", "nginx.conf"), "# an empty file to mount over\n")
	outside := filepath.Join(dir, "outside", "my.conf")
	write(t, outside, "worker_processes 1; error_log logs/error.log; pid nginx.pid; user root;\nevents { worker_connections 64; }\nhttp { "+temps+" access_log off;\n"+
		"server { listen 127.0.0.1:80 backlog=77; } }\n")
	script := fmt.Sprintf(`mount -t proc proc /proc; mount --bind %[1]s/inside /mnt; mount --bind %[2]s /mnt/nginx.conf; ip link set lo up;
exec setpriv --bounding-set=-sys_admin,-sys_ptrace,-sys_module %[3]s -p /mnt -c nginx.conf -e logs/start.log -g 'daemon off;'`, dir, outside, bin)
	cmd := exec.Command(unshare, "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", script)
	pid := 0
	proctest.StartUntil(t, cmd, func() bool {
		if children, _ := prefork.Children("/proc", cmd.Process.Pid); len(children) == 1 {
			pid = children[0]
		}
		return pid != 0 && strings.HasPrefix(prefork.Title("/proc", pid), "nginx: master")
	})
	root := "/proc/" + strconv.Itoa(pid) + "/root"
	was, inode := take(t, outside), inodeOf(t, outside)
	for _, c := range []cause.Change{
		{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "backlog", Value: "999", Was: "77", Path: root + "/mnt/nginx.conf", Line: 4},
		{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "worker_rlimit_nofile", Value: "345", Path: root + "/mnt/nginx.conf"},
	} {
		s := prepare(t, &c)
		apply(t, &c, s)
		if inodeOf(t, outside) != inode || !strings.Contains(take(t, outside).text, c.Value) {
			t.Errorf("%s: the mounted file is not the one that was written: %+v", c.Name, take(t, outside))
		}
		if do, _ := (files{}).Commands(&c, s); len(do) != 3 || !strings.HasPrefix(do[1].String(), fmt.Sprintf("# check where pid %d lives ", pid)) || !strings.HasPrefix(do[0].String(), "# edit "+root+"/mnt/nginx.conf:") {
			t.Errorf("commands %q", do)
		}
		if c.Name == "backlog" {
			out, _ := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-n", "ss", "-Hltn").Output()
			if !strings.Contains(string(out), " 999 ") {
				t.Errorf("the socket in the namespace: %s", out)
			}
		} else if n := limitOfFiles(t, pid); n != 345 {
			t.Errorf("workers may open %d files", n)
		}
		undo(t, &c, s)
		if got := take(t, outside); got != was || inodeOf(t, outside) != inode {
			t.Errorf("after undoing: %+v, want %+v", got, was)
		}
	}
	// The server's own test ran in its namespaces, and none of them leaked.
	for _, ns := range []string{"mnt", "net", "pid"} {
		if !sameFile("/proc/self/ns/"+ns, "/proc/thread-self/ns/"+ns) {
			t.Errorf("this thread is in another %s namespace", ns)
		}
	}
	bad := cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "backlog", Value: "much", Was: "77", Path: root + "/mnt/nginx.conf", Line: 4}
	s := prepare(t, &bad)
	refused(t, files{}.Apply(&bad, s), "backlog", "is as it was")

	// Torn: killed while it wrote in place.
	c := cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "backlog", Value: "9999", Was: "77", Path: root + "/mnt/nginx.conf", Line: 4}
	s = prepare(t, &c)
	cut := strings.Index(was.text, "77") + 1
	f, err := os.OpenFile(outside, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(was.text[:cut-1] + "9"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	undo(t, &c, s)
	if got := take(t, outside); got != was {
		t.Errorf("after a torn write: %+v, want %+v", got, was)
	}

	// With the container its files are gone.
	_ = cmd.Process.Kill()
	untilGone(t, pid)
	if _, gone, now, err := (files{}).Holds(&c, s); !gone || err != nil {
		t.Errorf("gone %v, now %q, %v", gone, now, err)
	}
	if err := (files{}).Undo(&c, s); err != nil {
		t.Error(err)
	}
}

// TestUnit: mounts of its own, in which the files are read-only, as a unit has it
// with ProtectSystem=.
func TestUnit(t *testing.T) {
	_, port, dir := startNginx(t)
	bin, unshare := proctest.Need(t, "nginx"), proctest.Need(t, "unshare")
	site, conf := filepath.Join(dir, "sites-available", "one"), filepath.Join(dir, "second.conf")
	other := proctest.Port(t)
	b, err := os.ReadFile(filepath.Join(dir, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, conf, strings.Replace(string(b), "pid nginx.pid", "pid second.pid", 1))
	text := strings.Replace(take(t, site).text, strconv.Itoa(port), strconv.Itoa(other), 1)
	write(t, site, text)
	script := fmt.Sprintf("mount --bind %[1]s/sites-available %[1]s/sites-available; mount -o remount,bind,ro %[1]s/sites-available; exec %[2]s -p %[1]s -c second.conf -e logs/s.log -g 'daemon off; user root;'", dir, bin)
	cmd := exec.Command(unshare, "--mount", "sh", "-c", script)
	proctest.Start(t, cmd, other)
	ready(t, "nginx", cmd.Process.Pid)
	was := take(t, site)
	c := cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: cmd.Process.Pid, Name: "backlog", Value: "999", Was: "77",
		Path: fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, site), Line: 3}
	s := prepare(t, &c)
	apply(t, &c, s)
	if n := backlog(t, other); n != 999 {
		t.Errorf("backlog %d", n)
	}
	undo(t, &c, s)
	if got := take(t, site); got != was {
		t.Errorf("%+v, want %+v", got, was)
	}
}

func inodeOf(t *testing.T, name string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// TestHardLink: a file with other names is written in place, so that they all
// show the same.
func TestHardLink(t *testing.T) {
	pid, _, dir := startNginx(t)
	conf, other := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "other-name")
	if err := os.Link(conf, other); err != nil {
		t.Fatal(err)
	}
	reload(t, pid)
	was := take(t, conf)
	c := cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "worker_connections", Value: "128", Was: "64", Path: conf, Line: 3}
	s := prepare(t, &c)
	apply(t, &c, s)
	if !strings.Contains(take(t, other).text, "128") {
		t.Error("the other name shows the old content")
	}
	undo(t, &c, s)
	if take(t, other).text != was.text || take(t, conf) != was {
		t.Error("not as before")
	}
}
