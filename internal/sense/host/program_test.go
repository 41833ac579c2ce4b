package host

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
)

func TestProgramWhateverItIsCalled(t *testing.T) {
	seen := 0
	for path, want := range map[string]string{
		"/usr/sbin/nginx": "nginx", "/usr/sbin/php-fpm8.2": "php-fpm", "/usr/lib/postgresql/15/bin/postgres": "postgres", "/usr/sbin/mariadbd": "mariadbd",
		"/usr/bin/redis-server": "redis-server", "/usr/sbin/haproxy": "haproxy", "/usr/sbin/apache2": "apache2", "/usr/bin/memcached": "memcached",
		"/usr/bin/uwsgi-core": "uwsgi", "/usr/sbin/pgbouncer": "pgbouncer", "/usr/bin/python3": "", "/bin/sh": "", "/usr/bin/psql": "", "/usr/bin/redis-cli": "",
	} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		seen++
		got, err := programOf(budget.New(context.Background(), budget.Limits{Bytes: 64 << 20, Unpacked: 64 << 20, Nodes: 1 << 20}), f)
		if err != nil && !errors.Is(err, elffile.ErrNotELF) || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
		f.Close()
	}
	if seen < 2 {
		t.Skip("no server is installed: programs are NOT told by what they hold")
	}
}

func TestProgramOfAProcess(t *testing.T) {
	from, err := os.Open("/usr/bin/memcached")
	if err != nil {
		t.Skip("memcached is not installed: a renamed program is NOT tested")
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), "ledger-engine")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	to.Close()
	cmd := exec.Command(path, "-u", "root", "-p", "0", "-s", filepath.Join(t.TempDir(), "s"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p := &Programs{}
	for range 2 { // the second time it is remembered
		b := budget.New(context.Background(), budget.Limits{Bytes: 8 << 20, Unpacked: 8 << 20, Nodes: 1 << 20})
		if got := p.Of(b, FS{Proc: "/proc"}, cmd.Process.Pid); got != "memcached" {
			t.Errorf("a renamed memcached is %q", got)
		}
	}
}
