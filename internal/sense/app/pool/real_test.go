package pool_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/apache"
	"github.com/slowray/slowray/internal/sense/app/gunicorn"
	"github.com/slowray/slowray/internal/sense/app/haproxy"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/app/uwsgi"
	"github.com/slowray/slowray/internal/sense/host"
)

// realServer is a server to start in a directory of its own.
type realServer struct {
	program  string
	conf     string // name of the configuration
	text     string // of it, with DIR, PORT and LIMIT to be replaced
	files    map[string]string
	command  []string
	discover func([]observe.Process, string) []*pool.Instance
	sampled  bool // its workers are looked at
}

var realServers = map[string]realServer{
	"apache": {program: "apache2", conf: "httpd.conf", discover: apache.Discover, command: []string{"apache2", "-f", "DIR/httpd.conf", "-D", "FOREGROUND"}, sampled: true,
		text: "ServerRoot DIR\nServerName x\nPidFile DIR/pid\nMutex file:DIR default\nUser www-data\nGroup www-data\nErrorLog log\nListen 127.0.0.1:PORT\n" +
			"LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\nLoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n" +
			"Include more.conf\n",
		files: map[string]string{"more.conf": "StartServers LIMIT\nServerLimit LIMIT\n<IfModule mpm_prefork_module>\nMaxRequestWorkers LIMIT\n</IfModule>\n"}},
	"haproxy": {program: "haproxy", conf: "haproxy.cfg", discover: haproxy.Discover, command: []string{"haproxy", "-db", "-f", "haproxy.cfg"},
		text: "global\n\tstats socket DIR/sock\ndefaults\n\tmode http\n\ttimeout client 1s\n\ttimeout connect 1s\n\ttimeout server 1s\nfrontend f\n\tmaxconn LIMIT\n\tbind 127.0.0.1:PORT\n"},
	"uwsgi": {program: "uwsgi", conf: "app.ini", discover: uwsgi.Discover, command: []string{"uwsgi", "--ini", "app.ini"}, sampled: true,
		text:  "[uwsgi]\nplugin = python3\nmaster = true\ndie-on-term = true\nhttp-socket = 127.0.0.1:PORT\nlogto = DIR/log\nprocesses = LIMIT\nwsgi-file = app.py\nchdir = DIR\n",
		files: map[string]string{"app.py": wsgi}},
	"gunicorn": {program: "gunicorn", conf: "gunicorn.conf.py", discover: gunicorn.Discover, command: []string{"/usr/bin/python3", "/usr/bin/gunicorn", "app:application"}, sampled: true,
		text:  "bind = '127.0.0.1:PORT'\nworkers = LIMIT\nerrorlog = 'log'\n",
		files: map[string]string{"app.py": wsgi}},
}

const wsgi = "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'ok']\n"

// TestRealServers: two instances at once, in directories of their own, one of
// them with files that only its own mount namespace has.
func TestRealServers(t *testing.T) {
	for name, s := range realServers {
		t.Run(name, func(t *testing.T) {
			proctest.Need(t, s.program)
			if os.Geteuid() != 0 {
				t.Skip("SKIPPED WITHOUT RIGHTS: not root")
			}
			for i, apart := range []bool{false, true} {
				s.check(t, 2+i, apart)
			}
		})
	}
}

func (s realServer) check(t *testing.T, limit int, apart bool) {
	dir, port := t.TempDir(), proctest.Port(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("DIR", dir, "PORT", strconv.Itoa(port), "LIMIT", strconv.Itoa(limit)).Replace
	files := map[string]string{s.conf: s.text}
	for name, text := range s.files {
		files[name] = text
	}
	script := "set -e\n"
	if apart {
		script += "mount -t tmpfs -o mode=755 tmpfs " + dir + "\n"
	}
	script += "cd " + dir + "\n"
	for name, text := range files {
		script += fmt.Sprintf("cat >%s <<'END'\n%sEND\n", name, fill(text))
	}
	script += "exec " + fill(strings.Join(s.command, " ")) + "\n"
	cmd := exec.Command("sh", "-c", script)
	if apart {
		cmd = exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Apache ends its whole process group
	proctest.Start(t, cmd, port)
	if apart {
		if _, err := os.Stat(filepath.Join(dir, s.conf)); err == nil {
			t.Fatal("the configuration is seen outside its mount namespace")
		}
	}
	// A port that answers does not say that all workers are there and have read
	// their program.
	got, gaps, losses := s.sample(t, cmd.Process.Pid)
	for try := 1; try < 5 && s.sampled && len(got.Pools) == 1 && (len(got.Workers) != limit || got.Pools[0].AllBusyRounds != 0); try++ {
		time.Sleep(200 * time.Millisecond)
		got, gaps, losses = s.sample(t, cmd.Process.Pid)
	}
	for _, g := range gaps {
		t.Errorf("gap %+v", g)
	}
	if len(losses) != 0 || len(got.Pools) != 1 {
		t.Fatalf("losses %+v, %+v", losses, got)
	}
	p := got.Pools[0]
	if p.Limit != limit || p.Setting.Line == 0 || !strings.HasPrefix(p.Setting.File, dir) || len(p.Listens) != 1 || p.Listens[0].Port != port {
		t.Errorf("pool %+v", p)
	}
	if (got.Root != "") != apart {
		t.Errorf("root %q", got.Root)
	}
	if s.sampled && (p.Rounds == 0 || p.AllBusyRounds != 0 || len(got.Workers) != limit) {
		t.Errorf("workers %v: %d rounds, all busy in %d", got.Workers, p.Rounds, p.AllBusyRounds)
	}
	for _, l := range got.Logs {
		if s.program != "haproxy" && l.Problem != "" {
			t.Errorf("log %+v", l)
		}
	}
	if s.program == "haproxy" && (p.Status == nil || p.Status.State != "OPEN" || p.Status.Limit != limit) {
		t.Errorf("statistics %+v", p.Status)
	}
}

// sample looks at the server with this pid for a quarter of a second.
func (s realServer) sample(t *testing.T, pid int) (observe.AppServer, []observe.Gap, []observe.Loss) {
	t.Helper()
	var in *pool.Instance
	for range 100 {
		for _, found := range s.discover(proctest.Processes(t), "/proc") {
			if found.PID == pid {
				in = found
			}
		}
		if in != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if in == nil {
		t.Fatalf("%s (pid %d) was not discovered", s.program, pid)
	}
	start := time.Now()
	in.Begin(enough())
	for range 12 {
		in.Sample(enough(), host.Default().Activity)
		time.Sleep(20 * time.Millisecond)
	}
	return in.End(enough(), observe.Window{Start: start, Seconds: time.Since(start).Seconds()})
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute, Bytes: 1 << 30})
}
