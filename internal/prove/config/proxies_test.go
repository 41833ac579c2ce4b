package config

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// keepOpen holds a connection with requests on it while what is done is done.
func keepOpen(t *testing.T, port int, do func()) {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	do()
	if _, err := io.WriteString(c, "Connection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 ") || strings.Contains(line, " 5") {
		t.Errorf("a request under way over the reload: %q, %v", line, err)
	}
}

func TestApache(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	needRoot(t)
	bin := proctest.Need(t, "apache2")
	port, dir := proctest.Port(t), t.TempDir()
	conf, mpm := filepath.Join(dir, "apache.conf"), filepath.Join(dir, "mods", "mpm.conf")
	write(t, conf, fmt.Sprintf("ServerRoot %s\nPidFile %s/pid\nServerName x\nLoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n"+
		"LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\nUser www-data\nGroup www-data\nListen 127.0.0.1:%d\nListenBacklog 33\nErrorLog %s/error.log\n"+
		"DocumentRoot %s\nIncludeOptional mods/*.conf\n", dir, dir, port, dir, dir))
	write(t, mpm, "<IfModule mpm_event_module>\n\tStartServers\t1\n\tThreadsPerChild\t10\n\tServerLimit\t20\n\tMaxRequestWorkers\t20 \n\tMinSpareThreads 10\n\tMaxSpareThreads 200\n</IfModule>\n")
	was := take(t, mpm)
	cmd := exec.Command(bin, "-f", conf, "-DFOREGROUND")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin", "LANG=C"}
	proctest.Start(t, cmd, port)
	pid := cmd.Process.Pid
	ready(t, "apache", pid)
	change := func(name, value, was string, line int) *cause.Change {
		return &cause.Change{Kind: cause.ChangeConfig, Server: "apache", PID: pid, Name: name, Value: value, Was: was, Path: mpm, Line: line}
	}
	c := change("MaxRequestWorkers", "50", "20", 5)
	s := prepare(t, c)
	keepOpen(t, port, func() { apply(t, c, s) })
	// 25 connections that wait for an answer hold as many threads: more than 20.
	if got := take(t, mpm).text; got != strings.Replace(was.text, "20 \n", "50 \n", 1) {
		t.Errorf("the file is %q", got)
	}
	if n := busy(t, port, 40); n < 30 {
		t.Errorf("%d connections are served at once, after MaxRequestWorkers 50", n)
	}
	undo(t, c, s)
	if got := take(t, mpm); got != was {
		t.Errorf("%+v, want %+v", got, was)
	}
	_, err := files{}.Prepare(change("MaxRequestWorkers", "400", "20", 5))
	refused(t, err, "room for 200 workers")
	_, err = files{}.Prepare(change("ServerLimit", "40", "20", 4))
	refused(t, err, "only when it is started")
	_, err = files{}.Prepare(&cause.Change{Kind: cause.ChangeConfig, Server: "apache", PID: pid, Name: "ListenBacklog", Value: "400", Was: "33", Path: conf, Line: 9})
	refused(t, err, "live socket")
	bad := change("NoSuchDirective", "on", "", 0)
	s = prepare(t, bad)
	refused(t, files{}.Apply(bad, s), "NoSuchDirective", "is as it was")
}

// busy opens connections that ask for nothing yet, and tells how many a server
// has accepted, by those that are not left in its queue.
func busy(t *testing.T, port, n int) int {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\n")
	}
	left := n
	for range 150 {
		out, _ := exec.Command("ss", "-Hltn", fmt.Sprintf("sport = :%d", port)).Output()
		f := strings.Fields(string(out))
		if len(f) > 1 {
			fmt.Sscan(f[1], &left)
		}
		if left == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return n - left
}

func TestHAProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	needRoot(t)
	bin := proctest.Need(t, "haproxy")
	port, dir := proctest.Port(t), t.TempDir()
	conf, socket := filepath.Join(dir, "ha.cfg"), filepath.Join(dir, "stats")
	write(t, conf, fmt.Sprintf("global\n    stats socket %s level admin\ndefaults\n    mode http\n    timeout client 5s\n    timeout server 5s\n    timeout connect 1s\n"+
		"frontend web\n    bind 127.0.0.1:%d # here\n    maxconn 50\n    backlog 64\n    http-request return status 200\n", socket, port))
	was := take(t, conf)
	cmd := exec.Command(bin, "-Ws", "-f", conf)
	proctest.Start(t, cmd, port)
	pid := cmd.Process.Pid
	ready(t, "haproxy", pid)
	change := func(name, value, was string, line int, section string) *cause.Change {
		return &cause.Change{Kind: cause.ChangeConfig, Server: "haproxy", PID: pid, Name: name, Value: value, Was: was, Path: conf, Line: line, Section: section}
	}
	set := []*cause.Change{change("maxconn", "333", "", 0, "global"), change("maxconn", "222", "50", 10, "")}
	first, second := prepare(t, set[0]), prepare(t, set[1])
	keepOpen(t, port, func() { apply(t, set[0], first); apply(t, set[1], second) })
	if got := ask(t, socket, "show info\n"); !strings.Contains(got, "\nMaxconn: 333\n") {
		t.Errorf("show info: %s", got)
	}
	if got := ask(t, socket, "show stat\n"); !strings.Contains(got, "web,FRONTEND,,,") || !strings.Contains(got, ",222,") {
		t.Errorf("show stat: %s", got)
	}
	undo(t, set[1], second)
	undo(t, set[0], first)
	if got := take(t, conf); got != was {
		t.Errorf("%+v, want %+v", got, was)
	}
	if got := ask(t, socket, "show stat\n"); strings.Contains(got, ",222,") {
		t.Errorf("after undoing: %s", got)
	}
	_, err := files{}.Prepare(change("backlog", "400", "64", 11, ""))
	refused(t, err, "live socket")
	if n := backlog(t, port); n != 64 {
		t.Errorf("backlog %d", n)
	}
	bad := change("mode", "bogus", "http", 4, "")
	s := prepare(t, bad)
	refused(t, files{}.Apply(bad, s), "is as it was")

	alone := proctest.Port(t)
	write(t, filepath.Join(dir, "b.cfg"), fmt.Sprintf("defaults\n timeout client 1s\n timeout connect 1s\n timeout server 1s\nfrontend f\n mode http\n bind 127.0.0.1:%d\n maxconn 5\n", alone))
	single := exec.Command(bin, "-db", "-f", filepath.Join(dir, "b.cfg"))
	proctest.Start(t, single, alone)
	c := change("maxconn", "50", "5", 8, "")
	c.PID, c.Path = single.Process.Pid, filepath.Join(dir, "b.cfg")
	_, err = files{}.Prepare(c)
	refused(t, err, "without master-worker mode")
}

func ask(t *testing.T, socket, question string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, question)
	b, _ := io.ReadAll(c)
	return string(b)
}

func TestUWSGI(t *testing.T) {
	slow(t)
	needRoot(t)
	bin := proctest.Need(t, "uwsgi")
	port, dir := proctest.Port(t), t.TempDir()
	conf := filepath.Join(dir, "u.ini")
	write(t, filepath.Join(dir, "app.py"), "def application(env, answer):\n    answer('200 OK', [])\n    return [b'ok']\n")
	write(t, conf, fmt.Sprintf("[uwsgi]\nplugin = python3\nmaster = true\nworkers = 2\nhttp-socket = 127.0.0.1:%d\nwsgi-file = %s/app.py\nlisten = 50\n", port, dir))
	was := take(t, conf)
	cmd := exec.Command(bin, "--ini", conf)
	proctest.StartUntil(t, cmd, func() bool {
		in, err := attach("uwsgi", cmd.Process.Pid)
		return err == nil && len(in.before.Workers) == 2
	})
	pid := cmd.Process.Pid
	c := &cause.Change{Kind: cause.ChangeConfig, Server: "uwsgi", PID: pid, Name: "processes", Value: "5", Was: "2", Path: conf, Line: 4}
	s := prepare(t, c)
	apply(t, c, s)
	if pids, _ := prefork.Children("/proc", pid); len(pids) != 5 {
		t.Errorf("%d workers, want 5", len(pids))
	}
	if b, err := body(fmt.Sprintf("http://127.0.0.1:%d/", port)); b != "ok" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	undo(t, c, s)
	if pids, _ := prefork.Children("/proc", pid); len(pids) != 2 {
		t.Errorf("%d workers, want 2", len(pids))
	}
	if got := take(t, conf); got != was {
		t.Errorf("%+v, want %+v", got, was)
	}
	for name, x := range map[string]*cause.Change{
		"no test":        {Name: "listen", Value: "500", Was: "50", Line: 7},
		"only raised":    {Name: "processes", Value: "1", Was: "2", Line: 4},
		"is not changed": {Name: "plugin", Value: "ruby", Was: "python3", Line: 2},
	} {
		x.Kind, x.Server, x.PID, x.Path = cause.ChangeConfig, "uwsgi", pid, conf
		_, err := files{}.Prepare(x)
		refused(t, err, name)
	}
}
