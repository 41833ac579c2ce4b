package tomcat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// TestRealTomcat starts Debian's Tomcat in a directory of its own.
func TestRealTomcat(t *testing.T) {
	const start = "/usr/share/tomcat10/bin/catalina.sh"
	if _, err := os.Stat(start); err != nil {
		t.Skip("SKIPPED WITHOUT A PROGRAM: tomcat10 is not installed")
	}
	dir, port := t.TempDir(), proctest.Port(t)
	for _, d := range []string{"conf", "logs", "temp", "webapps", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(dir, "conf/server.xml")
	text := fmt.Sprintf("<Server port=\"-1\">\n<Service name=\"Catalina\">\n<Connector address=\"127.0.0.1\" port=\"%d\"\n  maxThreads=\"3\" minSpareThreads=\"2\"/>\n"+
		"<Engine name=\"Catalina\" defaultHost=\"localhost\"><Host name=\"localhost\" appBase=\"webapps\"/></Engine>\n</Service>\n</Server>\n", port)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(start, "run")
	cmd.Env = append(os.Environ(), "CATALINA_HOME=/usr/share/tomcat10", "CATALINA_BASE="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	proctest.Start(t, cmd, port)
	found := Discover(proctest.Processes(t), "/proc")
	for _, in := range found {
		if in.PID != cmd.Process.Pid {
			continue
		}
		if made := pools(enough(), in)[fmt.Sprint(port)]; port < 10000 && made != 2 {
			t.Errorf("%d threads of the pool, want 2", made)
		}
		in.Begin(enough())
		got, gaps, _ := in.End(enough(), observe.Window{Seconds: 1})
		if len(gaps) != 0 || len(got.Pools) != 1 {
			t.Fatalf("gaps %+v, %+v", gaps, got)
		}
		p := got.Pools[0]
		if p.Limit != 3 || p.Setting.File != conf || p.Setting.Line != 3 || p.Listens[0].Port != port {
			t.Errorf("%+v", p)
		}
		return
	}
	t.Fatalf("Tomcat (pid %d) was not discovered", cmd.Process.Pid)
}
