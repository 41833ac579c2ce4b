package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// webServer is nginx with one worker, under wrk at full speed.
type webServer struct {
	*stage
	port, status int // of the page, of nginx's own counters
	pids         []int
	connections  int // of wrk
}

// newWebServer starts nginx. location is what it does with every request.
func newWebServer(s *stage, connections int, location string) *webServer {
	ports := s.ports(2)
	w := &webServer{stage: s, port: ports[0], status: ports[1], connections: connections}
	w.pids = []int{s.nginx(w.port, fmt.Sprintf(`
	server {
		listen 127.0.0.1:%d;
		location / { %s }
	}
	server {
		listen 127.0.0.1:%d;
		location / { stub_status; }
	}`, w.port, location, w.status))}
	return w
}

// nginx starts one worker with these servers, and gives its process once the port answers.
func (s *stage) nginx(port int, servers string) (pid int) {
	s.b.Helper()
	conf := filepath.Join(s.dir, "nginx.conf")
	// Without a master process: nothing is left if the benchmark is killed.
	text := fmt.Sprintf(`
daemon off;
master_process off;
user root;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx-error.log;
events { worker_connections 1024; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;%[2]s
}
`, s.dir, servers)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		s.b.Fatal(err)
	}
	return s.server(port, "nginx", "-p", s.dir, "-c", conf, "-e", filepath.Join(s.dir, "nginx-error.log"))
}

// counted is the number of requests that nginx has begun to answer, that for
// this number included.
func (w *webServer) counted() (uint64, error) {
	text, err := w.get(w.status)
	if err != nil {
		return 0, err
	}
	// "server accepts handled requests\n 2 2 3 \n"
	_, after, _ := strings.Cut(text, "handled requests\n")
	fields := strings.Fields(after)
	if len(fields) < 3 {
		return 0, fmt.Errorf("stub_status: %q", text)
	}
	return strconv.ParseUint(fields[2], 10, 64)
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in `)

func (w *webServer) run(d time.Duration) (outcome, error) {
	before, err := w.counted()
	if err != nil {
		return outcome{}, err
	}
	used := cpuOf(w.pids...)
	// wrk takes whole seconds only, and needs a moment to stop its connections:
	// the rate is its own.
	text, ended, err := w.output("wrk", "-t1", "-c", strconv.Itoa(w.connections), "-d", fmt.Sprintf("%.0fs", max(1, d.Seconds())),
		fmt.Sprintf("http://127.0.0.1:%d/", w.port))
	if err != nil {
		return outcome{}, err
	}
	if strings.Contains(text, "Socket errors") || strings.Contains(text, "Non-2xx") {
		return outcome{}, fmt.Errorf("wrk: not all went well: %s", text)
	}
	rate, err := after(text, "Requests/sec:")
	if err != nil || !wrkRequests.MatchString(text) {
		return outcome{}, fmt.Errorf("wrk: %w: %s", err, text)
	}
	used = cpuOf(w.pids...) - used + cpuOfEnded(ended)
	now, err := w.counted()
	return outcome{perSecond: rate, requests: now - before - 1, cpu: used}, err
}

// after is the number that follows a word.
func after(text, word string) (float64, error) {
	_, rest, ok := strings.Cut(text, word)
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		return 0, fmt.Errorf("no %q", word)
	}
	return strconv.ParseFloat(strings.Trim(fields[0], "(,"), 64)
}

// newPage starts PHP-FPM behind nginx, over TCP: every page is a request to
// nginx and one from nginx to PHP-FPM.
func newPage(s *stage) (web *webServer, fpm int) {
	fpm = s.ports(1)[0]
	page := filepath.Join(s.dir, "index.php")
	conf := filepath.Join(s.dir, "php-fpm.conf")
	files := map[string]string{
		page: `<?php $rows = [];
for ($i = 0; $i < 200; $i++) { $rows[] = ["id" => $i, "name" => md5((string)$i)]; }
header("Content-Type: application/json");
echo json_encode($rows);
`,
		conf: fmt.Sprintf(`[global]
daemonize = no
error_log = %[1]s/php-fpm-error.log
[www]
user = nobody
group = nogroup
listen = 127.0.0.1:%[2]d
pm = static
pm.max_children = 4
`, s.dir, fpm),
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			s.b.Fatal(err)
		}
	}
	master := s.server(fpm, "php-fpm8.2", "-F", "-y", conf)
	web = newWebServer(s, 8, fmt.Sprintf("fastcgi_pass 127.0.0.1:%d; fastcgi_param SCRIPT_FILENAME %s; fastcgi_param REQUEST_METHOD $request_method;", fpm, page))
	web.pids = append(web.pids, children(master)...)
	return web, fpm
}

// children are the processes a process has started.
func children(pid int) []int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var pids []int
	for _, f := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// database is MariaDB under point selects from sysbench.
type database struct {
	*stage
	port   int
	socket string
	pid    int
}

const databaseThreads = 8

func newDatabase(s *stage) *database {
	s.b.Helper()
	data := filepath.Join(s.dir, "data")
	if out, _, err := s.output("mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		s.b.Fatalf("%v: %s", err, out)
	}
	d := &database{stage: s, port: s.ports(1)[0], socket: filepath.Join(data, "socket")}
	d.pid = s.server(d.port, "mariadbd", "--no-defaults", "--user=mysql", "--datadir="+data, "--socket="+d.socket,
		"--bind-address=127.0.0.1", "--port="+strconv.Itoa(d.port), "--skip-name-resolve", "--max-connect-errors=1000000",
		"--pid-file="+filepath.Join(data, "pid"))
	if _, err := d.query("CREATE DATABASE sbtest"); err != nil {
		s.b.Fatal(err)
	}
	if _, _, err := s.output(d.sysbench("prepare")...); err != nil {
		s.b.Fatal(err)
	}
	return d
}

func (d *database) query(sql string) (string, error) {
	out, _, err := d.output("mariadb", "--no-defaults", "--user=root", "--socket="+d.socket, "--batch", "--skip-column-names", "-e", sql)
	return out, err
}

func (d *database) sysbench(args ...string) []string {
	return append([]string{"sysbench", "oltp_point_select", "--db-driver=mysql", "--mysql-host=127.0.0.1", "--mysql-user=root",
		"--mysql-port=" + strconv.Itoa(d.port), "--mysql-db=sbtest", "--table-size=10000", "--rand-type=uniform",
		"--db-ps-mode=disable", "--threads=" + strconv.Itoa(databaseThreads)}, args...)
}

// questions is the number of statements that clients have sent, that for this
// number included (through a socket that is not TCP).
func (d *database) questions() (uint64, error) {
	out, err := d.query("SHOW GLOBAL STATUS LIKE 'Questions'")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(out)
	if len(fields) != 2 {
		return 0, errors.New("questions: " + out)
	}
	return strconv.ParseUint(fields[1], 10, 64)
}

func (d *database) run(length time.Duration) (outcome, error) {
	one, err := d.questions()
	if err != nil {
		return outcome{}, err
	}
	before, err := d.questions()
	if err != nil {
		return outcome{}, err
	}
	asking := before - one // what asking adds itself
	used := cpuOf(d.pid)
	text, ended, err := d.output(d.sysbench("--time="+fmt.Sprintf("%.0f", max(1, length.Seconds())), "run")...)
	if err != nil {
		return outcome{}, err
	}
	used = cpuOf(d.pid) - used + cpuOfEnded(ended)
	_, queries, _ := strings.Cut(text, "queries:")
	rate, err := after(queries, "(")
	if err != nil {
		return outcome{}, fmt.Errorf("sysbench: %w: %s", err, text)
	}
	now, err := d.questions()
	return outcome{perSecond: rate, requests: now - before - asking, cpu: used}, err
}
