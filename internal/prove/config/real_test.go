package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"golang.org/x/sys/unix"
)

// TestMain lets the test's own program stand for another slowray: it applies or
// undoes a change that is given by the environment.
func TestMain(m *testing.M) {
	rogueMain()
	if os.Getenv("CONFIG_TEST_DO") == "" {
		os.Exit(m.Run())
	}
	var job job
	err := json.NewDecoder(os.Stdin).Decode(&job)
	var doer change.Doer
	if err == nil {
		doer, err = change.For(job.Change.Kind)
	}
	if err == nil {
		switch os.Getenv("CONFIG_TEST_DO") {
		case "apply":
			err = doer.Apply(&job.Change, job.State)
		case "undo":
			err = doer.Undo(&job.Change, job.State)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type job struct {
	Change cause.Change
	State  change.State
}

// other starts another process that applies or undoes.
func (j job) other(t *testing.T, do string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CONFIG_TEST_DO="+do)
	cmd.Stdin = bytes.NewReader(text)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED WITHOUT RIGHTS: this test needs root")
	}
}

// slow leaves a test out of quick runs.
func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: a quick run (-short)")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// snapshot is all of a file that must come back.
type snapshot struct {
	text           string
	mode, uid, gid uint32
	mtime          int64
	acl            string
	others, link   string
}

func take(t *testing.T, name string) snapshot {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	s := snapshot{text: string(b), mode: st.Mode, uid: st.Uid, gid: st.Gid, mtime: st.Mtim.Nano()}
	buf := make([]byte, 256)
	if n, err := unix.Getxattr(name, "user.test", buf); err == nil {
		s.acl = string(buf[:n])
	}
	s.link, _ = os.Readlink(name)
	names, _ := readNames(filepath.Dir(name))
	for _, n := range names {
		if strings.HasPrefix(n, ".slowray") {
			s.others += n + " "
		}
	}
	return s
}

// backlog is what ss(8) shows of a listening socket.
func backlog(t *testing.T, port int) int {
	t.Helper()
	out, err := exec.Command("ss", "-Hltn", fmt.Sprintf("sport = :%d", port)).Output()
	f := strings.Fields(string(out))
	if err != nil || len(f) < 3 {
		t.Fatalf("ss: %v %q", err, out)
	}
	n, _ := strconv.Atoi(f[2])
	return n
}

func prepare(t *testing.T, c *cause.Change) change.State {
	t.Helper()
	s, err := files{}.Prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func apply(t *testing.T, c *cause.Change, s change.State) {
	t.Helper()
	if err := (files{}).Apply(c, s); err != nil {
		t.Fatal(err)
	}
	holds, gone, now, err := files{}.Holds(c, s)
	if !holds || gone || err != nil {
		t.Fatalf("after Apply: holds %v, gone %v, now %q, %v", holds, gone, now, err)
	}
}

func undo(t *testing.T, c *cause.Change, s change.State) {
	t.Helper()
	if err := (files{}).Undo(c, s); err != nil {
		t.Fatal(err)
	}
	if holds, _, now, err := (files{}).Holds(c, s); holds || now != s.Was || err != nil {
		t.Fatalf("after Undo: holds %v, now %q, want %q, %v", holds, now, s.Was, err)
	}
}

// refused wants an error of one line with those words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("not refused; want an error with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
}

const temps = `client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f; uwsgi_temp_path tmp/u; scgi_temp_path tmp/s;`

// startNginx runs an nginx in a directory of its own, whose server stands in
// sites-enabled, a symbolic link.
func startNginx(t *testing.T) (pid, port int, dir string) {
	t.Helper()
	needRoot(t)
	bin := proctest.Need(t, "nginx")
	port, dir = proctest.Port(t), t.TempDir()
	for _, d := range []string{"tmp", "logs", "sites-enabled"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "nginx.conf"), "worker_processes 2; error_log logs/error.log; pid nginx.pid;\r\nevents {\r\n\tworker_connections 64; # few\r\n}\r\n"+
		"http { "+temps+" access_log off;\r\n keepalive_timeout 60;\r\n include sites-enabled/*;\r\n}\r\n")
	write(t, filepath.Join(dir, "sites-available", "one"), fmt.Sprintf("# the site\nserver {\n  listen 127.0.0.1:%d backlog=77 default_server;\n"+
		"  location / { return 200 ok; }\n  location /slow { limit_rate 20k; root .; }\n}\n", port))
	write(t, filepath.Join(dir, "slow"), strings.Repeat("x", 60<<10))
	if err := os.Symlink("../sites-available/one", filepath.Join(dir, "sites-enabled", "one")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-p", dir, "-c", "nginx.conf", "-e", "logs/start.log", "-g", "daemon off; user root;")
	proctest.Start(t, cmd, port)
	ready(t, "nginx", cmd.Process.Pid)
	return cmd.Process.Pid, port, dir
}

// ready waits until a server that listens already has told by its titles what it is.
func ready(t *testing.T, name string, pid int) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = attach(name, pid); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func body(url string) (string, error) {
	r, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// TestNginx changes a parameter behind a symbolic link, a directive, and one
// that is only a default, one after the other, and takes all back.
func TestNginx(t *testing.T) {
	pid, port, dir := startNginx(t)
	site, conf := filepath.Join(dir, "sites-available", "one"), filepath.Join(dir, "nginx.conf")
	link := filepath.Join(dir, "sites-enabled", "one")
	if err := os.Chmod(site, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(site, 0, 34); err != nil {
		t.Fatal(err)
	}
	_ = unix.Setxattr(site, "user.test", []byte("kept"), 0)
	// chmod is a change too: nginx is to have read the file after it.
	reload(t, pid)
	sites, main := take(t, site), take(t, conf)

	changes := []cause.Change{
		{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "backlog", Value: "999", Was: "77", Path: link, Line: 3},
		{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "worker_connections", Value: "128", Was: "64", Path: conf, Line: 3},
		{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "worker_rlimit_nofile", Value: "500", Path: conf},
		{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "multi_accept", Value: "on", Path: conf, Section: "events"},
	}
	together(t, changes)
	if got, want := [2]string{take(t, site).text, take(t, conf).text}, [2]string{sites.text, main.text}; got != want {
		t.Errorf("after undoing a set: %q, want %q", got, want)
	}
	download := make(chan string, 1)
	go func() {
		b, err := body(fmt.Sprintf("http://127.0.0.1:%d/slow", port))
		download <- fmt.Sprint(len(b), err)
	}()
	time.Sleep(100 * time.Millisecond)
	var states []change.State
	for i := range changes {
		s := prepare(t, &changes[i])
		states = append(states, s)
		apply(t, &changes[i], s)
	}
	if got := <-download; got != fmt.Sprint(60<<10, nil) {
		t.Errorf("a response over the reloads: %s", got)
	}
	if n := backlog(t, port); n != 999 {
		t.Errorf("the socket's backlog is %d", n)
	}
	if fds := limitOfFiles(t, pid); fds != 500 {
		t.Errorf("workers may open %d files", fds)
	}
	dump, _ := exec.Command(proctest.Need(t, "nginx"), "-T", "-q", "-p", dir, "-c", "nginx.conf", "-e", "logs/start.log").Output()
	for _, want := range []string{"\tworker_connections 128; # few\r\n", "\r\nworker_rlimit_nofile 500;\r\nevents {\r\n\tmulti_accept on;\r\n", "backlog=999 default_server;\n"} {
		if !strings.Contains(string(dump), want) {
			t.Errorf("no %q in what nginx -T prints:\n%s", want, dump)
		}
	}
	now := take(t, site)
	if now.mode != sites.mode || now.uid != 0 || now.gid != 34 || now.acl != sites.acl || take(t, link).link == "" {
		t.Errorf("the changed file: %+v, was %+v", now, sites)
	}
	do, back := files{}.Commands(&changes[0], states[0])
	if want := fmt.Sprintf("# edit %s:3: 'listen 127.0.0.1:%d backlog=77 default_server;' → 'listen 127.0.0.1:%d backlog=999 default_server;'", site, port, port); do[0].String() != want || len(do) != 3 || len(back) != 3 {
		t.Errorf("commands %q\nwant the first to be %q", do, want)
	}
	for i := len(changes) - 1; i >= 0; i-- {
		undo(t, &changes[i], states[i])
		undo(t, &changes[i], states[i])
	}
	if got := take(t, site); got != sites {
		t.Errorf("after undoing: %+v, want %+v", got, sites)
	}
	if got := take(t, conf); got != main {
		t.Errorf("after undoing: %+v, want %+v", got, main)
	}
	if n := backlog(t, port); n != 77 {
		t.Errorf("the socket's backlog is %d after undoing", n)
	}
}

// together prepares all changes before the first is applied, as the journal does,
// and undoes the last first.
func together(t *testing.T, changes []cause.Change) {
	t.Helper()
	var states []change.State
	for i := range changes {
		states = append(states, prepare(t, &changes[i]))
	}
	for i := range changes {
		apply(t, &changes[i], states[i])
	}
	for i := range changes {
		if holds, _, now, err := (files{}).Holds(&changes[i], states[i]); !holds || err != nil {
			t.Errorf("%s does not hold among others: %q, %v", changes[i].Name, now, err)
		}
	}
	for i := len(changes) - 1; i >= 0; i-- {
		undo(t, &changes[i], states[i])
	}
}

// limitOfFiles is the soft limit of a worker.
func limitOfFiles(t *testing.T, master int) int {
	t.Helper()
	s, err := attach("nginx", master)
	if err != nil {
		t.Fatal(err)
	}
	for pid := range s.before.Workers {
		var l unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l); err != nil {
			t.Fatal(err)
		}
		return int(l.Cur)
	}
	return 0
}

// reload has a server read what the test has written.
func reload(t *testing.T, pid int) {
	t.Helper()
	time.Sleep(30 * time.Millisecond)
	s, err := attach("nginx", pid)
	if err == nil {
		err = s.reload()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNginxRefusals: what must not be changed is not, and says why.
func TestNginxRefusals(t *testing.T) {
	pid, _, dir := startNginx(t)
	conf := filepath.Join(dir, "nginx.conf")
	c := cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "worker_connections", Value: "128", Was: "64", Path: conf, Line: 3}
	with := func(f func(*cause.Change)) *cause.Change { d := c; f(&d); return &d }
	for name, x := range map[string]struct {
		c    *cause.Change
		want string
	}{
		"same value":       {with(func(c *cause.Change) { c.Value = "64" }), "64 already"},
		"not there":        {with(func(c *cause.Change) { c.Name = "use" }), "no use stands there"},
		"no such section":  {with(func(c *cause.Change) { c.Line, c.Section = 0, "stream" }), `no section "stream"`},
		"not its file":     {with(func(c *cause.Change) { c.Path = "/etc/hostname" }), "not a file that nginx"},
		"quotes":           {with(func(c *cause.Change) { c.Value = "1;} evil" }), "quotes"},
		"no such process":  {with(func(c *cause.Change) { c.PID = 1 << 22 }), "does not run"},
		"another process":  {with(func(c *cause.Change) { c.PID = os.Getpid() }), "no master of nginx"},
		"unknown server":   {with(func(c *cause.Change) { c.Server = "memcached" }), "memcached cannot be changed"},
		"not a directive?": {with(func(c *cause.Change) { c.Name = "x; y" }), "no name of a directive"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := files{}.Prepare(x.c)
			refused(t, err, x.want)
		})
	}

	// What nginx itself refuses: the file comes back.
	was := take(t, conf)
	bad := with(func(c *cause.Change) { c.Value = "many" })
	s := prepare(t, bad)
	refused(t, files{}.Apply(bad, s), "invalid number", "is as it was")
	if got := take(t, conf); got != was {
		t.Errorf("after a refusal: %+v, want %+v", got, was)
	}

	// Somebody else edits the file: neither applied over it, nor undone over it.
	s = prepare(t, &c)
	apply(t, &c, s)
	time.Sleep(50 * time.Millisecond)
	b, _ := os.ReadFile(conf)
	write(t, conf, string(b)+"# mine\n")
	holds, _, now, err := files{}.Holds(&c, s)
	if holds || err != nil || !strings.Contains(now, "not taken over") {
		t.Errorf("holds %v, now %q, %v", holds, now, err)
	}
	refused(t, files{}.Apply(&c, s), "was changed at")
	_, err = files{}.Prepare(with(func(c *cause.Change) { c.Value = "256" }))
	refused(t, err, "was changed at", "reload or put it back first")
	write(t, conf, strings.Replace(string(b), "128; # few", "200; # mine", 1))
	refused(t, files{}.Undo(&c, s), "somebody else")
	if holds, _, now, err := (files{}).Holds(&c, s); holds || err != nil || !strings.Contains(now, "somebody else") {
		t.Errorf("holds %v, now %q, %v", holds, now, err)
	}
	reload(t, pid)

	// Somebody else edits another line: only ours is taken back.
	c.Was, c.Value = "200", "128"
	s = prepare(t, &c)
	apply(t, &c, s)
	b, _ = os.ReadFile(conf)
	write(t, conf, string(b)+"# mine too\n")
	if err := (files{}).Undo(&c, s); err != nil {
		t.Error(err)
	}
	if got := take(t, conf).text; !strings.Contains(got, "200; # mine") || !strings.HasSuffix(got, "# mine too\n") {
		t.Errorf("the file is %q", got)
	}

	// Broken elsewhere, though an mtime of long ago hides it.
	write(t, filepath.Join(dir, "sites-enabled", "two"), "server { listen x:y:z; }")
	reloadMaster(t, pid)
	_, err = files{}.Prepare(with(func(c *cause.Change) { c.Value = "256" }))
	refused(t, err, "two")
}

func reloadMaster(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
}

// TestNginxKilled kills the process that applies at several moments, and has
// another one undo.
func TestNginxKilled(t *testing.T) {
	slow(t)
	pid, port, dir := startNginx(t)
	conf := filepath.Join(dir, "sites-available", "one")
	was := take(t, conf)
	for _, after := range []time.Duration{0, 8, 16, 24, 32, 48, 64, 96, 160, 300} {
		c := cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "backlog", Value: "999", Path: filepath.Join(dir, "sites-enabled", "one"), Line: 3}
		j := job{c, prepare(t, &c)}
		cmd, _ := j.other(t, "apply")
		time.Sleep(after * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		cmd, out := j.other(t, "undo")
		if err := cmd.Wait(); err != nil {
			t.Fatalf("killed after %d ms: %v: %s", after, err, out)
		}
		if got := take(t, conf); got != was {
			t.Fatalf("killed after %d ms: %+v, want %+v", after, got, was)
		}
		if n := backlog(t, port); n != 77 {
			t.Fatalf("killed after %d ms: the socket's backlog is %d", after, n)
		}
	}
	// Written, and not told: it is seen not to hold, and undone without a reload.
	c := cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "backlog", Value: "999", Path: conf, Line: 3}
	s := prepare(t, &c)
	d, err := open(&c, s)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	time.Sleep(50 * time.Millisecond)
	if err := d.write(d.file, d.new, false); err != nil {
		t.Fatal(err)
	}
	if holds, _, now, err := (files{}).Holds(&c, s); holds || err != nil || !strings.Contains(now, "not taken over") {
		t.Errorf("holds %v, now %q, %v", holds, now, err)
	}
	undo(t, &c, s)
	if got := take(t, conf); got != was {
		t.Errorf("%+v, want %+v", got, was)
	}
}
