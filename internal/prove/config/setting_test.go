package config

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"github.com/slowray/slowray/internal/shell"
)

// cycle sets and puts back, and asks the server by its own client in between.
func cycle(t *testing.T, c *cause.Change, ask func() string, was, now string) {
	t.Helper()
	d := settings{}
	s, err := d.Prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	if s.Was != was || ask() != was {
		t.Errorf("%s was %q by Prepare, %q by its client, want %q", c.Name, s.Was, ask(), was)
	}
	if err := d.Apply(c, s); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != now {
		t.Errorf("%s is %q after Apply, want %q", c.Name, got, now)
	}
	if holds, gone, _, err := d.Holds(c, s); !holds || gone || err != nil {
		t.Errorf("%s: holds %v, gone %v, %v", c.Name, holds, gone, err)
	}
	// Another process undoes.
	cmd, out := job{*c, s}.other(t, "undo")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := d.Undo(c, s); err != nil {
		t.Error(err)
	}
	if got := ask(); got != was {
		t.Errorf("%s is %q after Undo, want %q", c.Name, got, was)
	}
	if holds, _, at, err := d.Holds(c, s); holds || at != was || err != nil {
		t.Errorf("%s: holds %v, now %q, %v", c.Name, holds, at, err)
	}
}

func TestRedis(t *testing.T) {
	needRoot(t)
	bin, cli := proctest.Need(t, "redis-server"), proctest.Need(t, "redis-cli")
	port, dir := proctest.Port(t), t.TempDir()
	conf := filepath.Join(dir, "redis.conf")
	write(t, conf, fmt.Sprintf("# Redis\nport %d\nbind 127.0.0.1\ndir %s\nsave 3600 1 300 100\nmaxclients 50\n", port, dir))
	cmd := exec.Command(bin, conf)
	proctest.Start(t, cmd, port)
	ask := func(name string) func() string {
		return func() string {
			out, _ := exec.Command(cli, "-p", fmt.Sprint(port), "CONFIG", "GET", name).Output()
			_, value, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			return value
		}
	}
	c := func(name, value string) *cause.Change {
		return &cause.Change{Kind: cause.ChangeSetting, Server: "redis", PID: cmd.Process.Pid, Port: port, Name: name, Value: value}
	}
	cycle(t, c("maxclients", "100"), ask("maxclients"), "50", "100")
	cycle(t, c("maxmemory", "64mb"), ask("maxmemory"), "0", "67108864")
	cycle(t, c("appendfsync", "no"), ask("appendfsync"), "everysec", "no")
	cycle(t, c("save", ""), ask("save"), "3600 1 300 100", "")
	for name, want := range map[string]string{"maxclients": fmt.Sprintf("# maxclients 100 in %s:6 (50 there now)", conf), "appendfsync": fmt.Sprintf("# appendfsync 100 in %s, added", conf)} {
		if got := Lasting(c(name, "100")).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	do, undo := func() ([]shell.Command, []shell.Command) {
		s, err := settings{}.Prepare(c("maxclients", "100"))
		if err != nil {
			t.Fatal(err)
		}
		return settings{}.Commands(c("maxclients", "100"), s)
	}()
	if want := fmt.Sprintf("redis-cli -h 127.0.0.1 -p %d CONFIG SET maxclients 100", port); len(do) != 1 || do[0].String() != want || !strings.HasSuffix(undo[0].String(), " 50") {
		t.Errorf("%q, %q", do, undo)
	}
	for value, want := range map[[2]string]string{{"maxclients", "50"}: "50 already", {"nonsense", "5"}: "no setting nonsense", {"port", "5"}: "not changed while it runs",
		{"bad name", "5"}: "no name of a setting"} {
		_, err := settings{}.Prepare(c(value[0], value[1]))
		refused(t, err, want)
	}
	s, err := settings{}.Prepare(c("maxclients", "many"))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, settings{}.Apply(c("maxclients", "many"), s), "Redis")

	// Somebody else sets it meanwhile.
	x := c("maxclients", "100")
	if s, err = (settings{}).Prepare(x); err != nil {
		t.Fatal(err)
	}
	if err := (settings{}).Apply(x, s); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(cli, "-p", fmt.Sprint(port), "CONFIG", "SET", "maxclients", "70").Run(); err != nil {
		t.Fatal(err)
	}
	refused(t, settings{}.Undo(x, s), "somebody else", "it was 50")
	refused(t, settings{}.Apply(x, s), "somebody else")
	if err := exec.Command(cli, "-p", fmt.Sprint(port), "CONFIG", "SET", "requirepass", "x").Run(); err != nil {
		t.Fatal(err)
	}
	_, err = settings{}.Prepare(x)
	refused(t, err, "asks for a password")

	_ = cmd.Process.Kill()
	untilGone(t, cmd.Process.Pid)
	if _, gone, now, err := (settings{}).Holds(x, s); !gone || err != nil || !strings.Contains(now, "has ended") {
		t.Errorf("gone %v, now %q, %v", gone, now, err)
	}
	if err := (settings{}).Undo(x, s); err != nil {
		t.Error(err)
	}
}

// untilGone waits for the end of a process that was killed.
func untilGone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := startTicks(pid); err != nil {
			return
		}
	}
	t.Fatal("a killed process is still there")
}

func TestMariaDB(t *testing.T) {
	slow(t)
	needRoot(t)
	bin, cli, install := proctest.Need(t, "mariadbd"), proctest.Need(t, "mariadb"), proctest.Need(t, "mariadb-install-db")
	dir := t.TempDir()
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "socket")
	if out, err := exec.Command(install, "--no-defaults", "--user=root", "--datadir="+data, "--auth-root-authentication-method=socket", "--skip-test-db").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(bin, "--no-defaults", "--user=root", "--datadir="+data, "--socket="+socket, "--skip-networking", "--pid-file="+dir+"/pid",
		"--max-connections=30", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0")
	proctest.StartUntil(t, cmd, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	ask := func(name string) func() string {
		return func() string {
			out, err := exec.Command(cli, "--no-defaults", "-S", socket, "-N", "-B", "-e", "SHOW GLOBAL VARIABLES LIKE '"+name+"'").CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			_, value, _ := strings.Cut(strings.TrimSpace(string(out)), "\t")
			return value
		}
	}
	c := func(name, value string) *cause.Change {
		return &cause.Change{Kind: cause.ChangeSetting, Server: "mariadb", PID: cmd.Process.Pid, Name: name, Value: value}
	}
	cycle(t, c("max_connections", "300"), ask("max_connections"), "30", "300")
	cycle(t, c("long_query_time", "0.5"), ask("long_query_time"), "10.000000", "0.500000")
	cycle(t, c("slow_query_log", "ON"), ask("slow_query_log"), "OFF", "ON")
	cycle(t, c("binlog_format", "ROW"), ask("binlog_format"), "MIXED", "ROW")
	if got, want := Lasting(c("max_connections", "300")).String(), fmt.Sprintf("# --max-connections=300 on the command line of MariaDB (pid %d)", cmd.Process.Pid); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for value, want := range map[[2]string]string{{"max_connections", "30"}: "30 already", {"nonsense", "5"}: "Unknown system variable", {"x; DROP", "5"}: "no name of a setting"} {
		_, err := settings{}.Prepare(c(value[0], value[1]))
		refused(t, err, want)
	}
	for _, x := range []*cause.Change{c("max_connections", "many"), c("datadir", "/tmp"), c("max_connections", "5'; DROP")} {
		if s, err := (settings{}).Prepare(x); err == nil {
			refused(t, settings{}.Apply(x, s), "MariaDB")
		} else {
			t.Error(err)
		}
	}
	// The server cuts what is too much: then nothing is changed.
	x := c("max_connections", "1000000")
	s, err := settings{}.Prepare(x)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, settings{}.Apply(x, s), "was cut to")
	if got := ask("max_connections")(); got != "30" {
		t.Errorf("max_connections is %s", got)
	}
}

func TestOtherServersHaveNoSettings(t *testing.T) {
	for server, want := range map[string]string{"memcached": "takes no settings", "postgres": "ALTER SYSTEM", "redis": "not Redis"} {
		_, err := settings{}.Prepare(&cause.Change{Kind: cause.ChangeSetting, Server: server, PID: os.Getpid(), Name: "a", Value: "b"})
		refused(t, err, want)
	}
}

func TestSameValues(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{{"1mb", "1048576", true}, {"1m", "1000000", true}, {"5", "6", false}, {"x", "x", true}, {"no", "yes", false}, {"", "0", false}} {
		if sameMemory(c.a, c.b) != c.same {
			t.Errorf("%q and %q", c.a, c.b)
		}
	}
	if !sameNumber("10", "10.000000") || !sameNumber("ON", "1") || sameNumber("5", "50") || literal("a'b\\") != `'a''b\\'` || literal("5.5") != "5.5" {
		t.Error("numbers")
	}

}

// TestSocketOfAnother: a socket of a database leads to another process by now, which
// would let slowray in as root as well: it is not asked.
func TestSocketOfAnother(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	start := func(name string) (pid int, socket string) {
		socket = filepath.Join(dir, name)
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"listener", socket}
		proctest.StartUntil(t, cmd, func() bool {
			c, err := net.Dial("unix", socket)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		return cmd.Process.Pid, socket
	}
	pid, own := start("own")
	other, theirs := start("theirs")
	abstract := "@slowray-test-" + filepath.Base(dir) + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := func(pid int, name string) error {
		a, err := accessTo(&cause.Change{PID: pid})
		if err != nil {
			t.Fatal(err)
		}
		defer a.close()
		c, err := a.dialUnix(t.Context(), name)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(pid, own); err != nil {
		t.Error(err)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(theirs, own); err != nil {
		t.Fatal(err)
	}
	refused(t, dial(pid, own), fmt.Sprintf("leads to process %d, not to process %d", other, pid))
	refused(t, dial(pid, abstract), fmt.Sprintf("leads to process %d, not to process %d", os.Getpid(), pid))
}
