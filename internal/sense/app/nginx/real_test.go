package nginx

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

const temps = `client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f; uwsgi_temp_path tmp/u; scgi_temp_path tmp/s;`

// serve starts nginx in the foreground with a configuration in a directory of
// its own, and returns what Discover finds of it.
func serve(t *testing.T, conf string, port int) (*Instance, string) {
	t.Helper()
	bin := proctest.Need(t, "nginx")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "nginx.conf"), conf)
	write(t, filepath.Join(dir, "limited"), "ok")
	for _, d := range []string{"tmp", "logs"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	global := "daemon off;"
	if os.Geteuid() == 0 {
		global += " user root;" // workers could not enter a test's directory otherwise
	}
	cmd := exec.Command(bin, "-p", dir, "-c", "nginx.conf", "-e", "logs/start.log", "-g", global)
	proctest.Start(t, cmd, port)
	return findInstance(t, cmd.Process.Pid), dir
}

func findInstance(t *testing.T, pid int) *Instance {
	t.Helper()
	for range 100 {
		for _, in := range Discover(proctest.Processes(t), "/proc") {
			if in.PID == pid && (in.single || len(in.listed) > 0) {
				return in
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("nginx %d was not discovered", pid)
	return nil
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(url string, timeout time.Duration) int {
	c := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// peer accepts connections and does with them what is asked.
func peer(t *testing.T, handle func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go handle(c)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func kinds(n observe.Nginx) map[string]int64 {
	m := map[string]int64{}
	for _, k := range n.Errors {
		m[strings.TrimSpace(k.Kind+" "+k.Upstream)] += k.Count
	}
	return m
}

func TestRealNginx(t *testing.T) {
	port, refused := proctest.Port(t), proctest.Port(t)
	silent := peer(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	closing := peer(t, func(c net.Conn) { c.Read(make([]byte, 1)); c.Close() })
	in, dir := serve(t, fmt.Sprintf(`
worker_processes 2; error_log logs/error.log info; pid nginx.pid;
events { worker_connections 64; }
http { %s
 log_format js escape=json '{"t":"$time_iso8601","r":"$request","status":$status,"rt":$request_time}';
 access_log logs/access.log js;
 limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
 upstream back { server 127.0.0.1:%d; keepalive 4; }
 server { listen 127.0.0.1:%d backlog=77;
  location = / { return 200 "ok"; }
  location = /refused { fastcgi_pass 127.0.0.1:%d; }
  location = /slow { fastcgi_read_timeout 300ms; fastcgi_pass 127.0.0.1:%d; }
  location = /back { proxy_pass http://back; }
  location = /limited { limit_req zone=z; root .; }
 } }`, temps, closing, port, refused, silent), port)
	in.Begin(enough())
	start := time.Now()
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	for range 5 {
		get(url+"/", time.Second)
	}
	for range 3 {
		get(url+"/refused", time.Second)
	}
	get(url+"/slow", 5*time.Second)
	get(url+"/slow", 100*time.Millisecond) // the client gives up: 499
	get(url+"/back", time.Second)
	rotate(t, in.PID, filepath.Join(dir, "logs"))
	for range 4 {
		get(url+"/limited", time.Second)
	}
	in.SampleConnections(enough(), func(int) (int, error) { return 7, nil })
	time.Sleep(100 * time.Millisecond)
	got, gaps, losses := in.End(enough(), observe.Window{Start: start, Seconds: time.Since(start).Seconds()})

	if len(gaps) != 0 || len(losses) != 0 {
		t.Errorf("gaps %+v, losses %+v", gaps, losses)
	}
	conf := filepath.Join(dir, "nginx.conf")
	at := func(v string, line int) observe.Setting { return observe.Setting{Value: v, File: conf, Line: line} }
	want := observe.Nginx{PID: in.PID, NetNS: 1, Config: conf,
		WorkerProcesses: at("2", 2), WorkerConnections: at("64", 3), WorkerRlimitNofile: observe.Setting{Default: true},
		Listens: []observe.NginxListen{{Addr: "127.0.0.1", Port: port, Backlog: at("77", 9), File: conf, Line: 9}},
		Upstreams: []observe.NginxUpstream{
			{Name: addr(refused), Via: "fastcgi", Servers: []string{addr(refused)}, Keepalive: observe.Setting{Value: "0", Default: true}, File: conf, Line: 11},
			{Name: addr(silent), Via: "fastcgi", Servers: []string{addr(silent)}, Keepalive: observe.Setting{Value: "0", Default: true}, File: conf, Line: 12},
			{Name: "back", Via: "proxy", Servers: []string{addr(closing)}, Keepalive: at("0", 13), File: conf, Line: 8},
		},
		Limits: []observe.NginxLimit{{Kind: "req", Zone: "z", Key: "$binary_remote_addr", Rate: "1r/s",
			Status: observe.Setting{Value: "503", Default: true}, File: conf, Line: 14, Zoned: conf + ":7"}}}
	ignore := cmpopts.IgnoreFields(observe.Nginx{}, "Workers", "ConnectionsPeak", "Errors", "Statuses", "Logs")
	if d := cmp.Diff(want, got, ignore); d != "" {
		t.Error(d)
	}
	if len(got.Workers) != 2 || len(got.ConnectionsPeak) != 2 || got.ConnectionsPeak[got.Workers[0]] != 7 {
		t.Errorf("workers %v, peaks %v", got.Workers, got.ConnectionsPeak)
	}
	wantKinds := map[string]int64{"upstream-refused " + addr(refused): 3, "upstream-read-timeout " + addr(silent): 1,
		"upstream-reset " + addr(closing): 1, "client-closed": 1, "limit-req z": 3}
	if d := cmp.Diff(wantKinds, kinds(got)); d != "" {
		t.Errorf("%s%+v", d, got.Errors)
	}
	var sum observe.StatusSecond
	for _, s := range got.Statuses {
		sum.S2xx, sum.S4xx, sum.S499, sum.S5xx = sum.S2xx+s.S2xx, sum.S4xx+s.S4xx, sum.S499+s.S499, sum.S5xx+s.S5xx
	}
	if d := cmp.Diff(observe.StatusSecond{S2xx: 6, S499: 1, S5xx: 8}, sum); d != "" {
		t.Error(d)
	}
	for _, l := range got.Logs {
		if l.Problem != "" || l.Unparsed != 0 || l.GrownBytes != l.ReadBytes {
			t.Errorf("log %+v", l)
		}
	}
}

func addr(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// rotate does what logrotate does: rename, then let nginx open anew.
func rotate(t *testing.T, pid int, logs string) {
	t.Helper()
	for _, n := range []string{"error.log", "access.log"} {
		p := filepath.Join(logs, n)
		if err := os.Rename(p, p+".1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := os.Stat(filepath.Join(logs, "access.log")); err == nil {
			time.Sleep(100 * time.Millisecond)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nginx did not reopen its logs")
}

func TestRealNginxConnectionLimit(t *testing.T) {
	port := proctest.Port(t)
	in, _ := serve(t, fmt.Sprintf(`worker_processes 1; error_log logs/error.log warn; pid nginx.pid;
events { worker_connections 8; } http { %s access_log off; server { listen 127.0.0.1:%d; return 200; } }`, temps, port), port)
	in.Begin(enough())
	start := time.Now()
	for range 40 {
		c, err := net.Dial("tcp", addr(port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\n")
	}
	time.Sleep(300 * time.Millisecond)
	got, _, _ := in.End(enough(), observe.Window{Start: start, Seconds: time.Since(start).Seconds()})
	if len(got.Errors) == 0 || got.Errors[0].Kind != KindWorkerConnections || got.Errors[0].Number != 8 {
		t.Errorf("errors %+v", got.Errors)
	}
}

func TestRealNginxSingleProcess(t *testing.T) {
	port := proctest.Port(t)
	in, dir := serve(t, fmt.Sprintf(`master_process off; pid nginx.pid; events {} http { %s access_log off; server { listen 127.0.0.1:%d; } }`, temps, port), port)
	in.Begin(enough())
	got, _, _ := in.End(enough(), observe.Window{Start: time.Now(), Seconds: 1})
	if got.Config != filepath.Join(dir, "nginx.conf") || len(got.Listens) != 1 || len(got.Workers) != 1 || got.Workers[0] != in.PID {
		t.Errorf("%+v", got)
	}
}

func TestRealNginxConfigChanged(t *testing.T) {
	port := proctest.Port(t)
	in, dir := serve(t, fmt.Sprintf(`error_log logs/e.log warn; pid nginx.pid; events {} http { %s access_log off; server { listen 127.0.0.1:%d; } }`, temps, port), port)
	time.Sleep(2500 * time.Millisecond)
	conf := filepath.Join(dir, "nginx.conf")
	text, _ := os.ReadFile(conf)
	write(t, conf, string(text)+"\n# changed\n")
	in.Begin(enough())
	_, gaps, _ := in.End(enough(), observe.Window{Start: time.Now(), Seconds: 1})
	if len(gaps) != 1 || gaps[0].Subject != conf || !gaps[0].Partial || !strings.Contains(gaps[0].Because, "changed after the workers") {
		t.Errorf("gaps %+v", gaps)
	}
}

// TestRealNginxReplacedLog: nginx writes on into a file that was deleted.
func TestRealNginxReplacedLog(t *testing.T) {
	port := proctest.Port(t)
	in, dir := serve(t, fmt.Sprintf(`error_log logs/e.log warn; pid nginx.pid; events {} http { %s access_log logs/a.log; server { listen 127.0.0.1:%d; } }`, temps, port), port)
	os.Remove(filepath.Join(dir, "logs/a.log"))
	before := openFDs()
	in.Begin(enough())
	_, gaps, _ := in.End(enough(), observe.Window{Start: time.Now(), Seconds: 1})
	if len(gaps) != 1 || gaps[0].Subject != filepath.Join(dir, "logs/a.log") || !strings.Contains(gaps[0].Because, "has open") {
		t.Errorf("gaps %+v", gaps)
	}
	if after := openFDs(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openFDs() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

// TestRealNginxOtherRoot runs nginx without any option in a mount namespace
// where /etc/nginx is another directory: the compiled-in path must be found
// and read as that nginx sees it.
func TestRealNginxOtherRoot(t *testing.T) {
	bin := proctest.Need(t, "nginx")
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED WITHOUT RIGHTS: a mount namespace needs root")
	}
	port := proctest.Port(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "nginx.conf"), `user root; worker_processes 1; pid /etc/nginx/pid; daemon off;
error_log /etc/nginx/error.log warn; events { worker_connections 33; } http { include /etc/nginx/sites/*.conf; }`)
	sites := filepath.Join(dir, "sites")
	if err := os.Mkdir(sites, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(sites, "a.conf"), fmt.Sprintf("access_log /etc/nginx/access.log;\nserver { listen %d; return 200; }", port))
	cmd := exec.Command("/bin/sh", "-c", `mount --bind "$1" /etc/nginx && exec "$2"`, "sh", dir, bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	proctest.Start(t, cmd, port)
	in := findInstance(t, cmd.Process.Pid)
	in.Begin(enough())
	start := time.Now()
	get("http://"+addr(port)+"/", time.Second)
	time.Sleep(50 * time.Millisecond)
	got, gaps, _ := in.End(enough(), observe.Window{Start: start, Seconds: 1})
	if got.Root != fmt.Sprintf("/proc/%d/root", in.PID) || got.Config != "/etc/nginx/nginx.conf" || len(gaps) != 0 {
		t.Errorf("%+v, gaps %+v", got, gaps)
	}
	if got.WorkerConnections.Value != "33" || len(got.Listens) != 1 || got.Listens[0].File != "/etc/nginx/sites/a.conf" {
		t.Errorf("%+v", got)
	}
	if len(got.Statuses) != 1 || got.Statuses[0].S2xx != 1 {
		t.Errorf("statuses %+v of %+v", got.Statuses, got.Logs)
	}
}
