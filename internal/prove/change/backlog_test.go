package change

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

func (c *child) listening() string { return c.inside("ss", "-Hltn") }

func (c *child) sendQ(port int) []string {
	var out []string
	for line := range strings.Lines(c.listening()) {
		if f := strings.Fields(line); strings.HasSuffix(f[3], fmt.Sprintf(":%d", port)) {
			out = append(out, f[2])
		}
	}
	return out
}

func TestBacklogOfWorkers(t *testing.T) {
	p := newChild(t)
	fd := p.tell("listen 8123 5")
	p.tell("listen 8123 5")
	p.tell("listen 8123 5")
	p.tell("listen 8124 6") // another port
	c := p.change(cause.ChangeBacklog)
	c.Addr, c.Port, c.Value = "0.0.0.0", 8123, "511"
	was := cycle(t, c, p.listening, func() error {
		if got := fmt.Sprint(p.sendQ(8123), p.sendQ(8124)); got != "[511 511 511] [6]" {
			return fmt.Errorf("backlogs are %s", got)
		}
		return nil
	})
	if was.Was != "5 on 3 sockets" {
		t.Errorf("was %q", was.Was)
	}
	d, _ := For(c.Kind)
	must(t, d.Apply(c, was))
	p.tell("relisten %s 33", fd)
	check(t, d, c, was, "one of three changed by its program", true, "")
	must(t, d.Undo(c, was))
	if got := slices.Sorted(slices.Values(p.sendQ(8123))); fmt.Sprint(got) != "[33 5 5]" {
		t.Errorf("after undoing: %s", got)
	}
	c.Addr = "127.0.0.1" // as a client reaches it
	if _, err := d.Prepare(c); err != nil {
		t.Error(err)
	}
	p.end()
	isGone(t, c, was)
}

func TestBacklogUpToSomaxconn(t *testing.T) {
	p := newChild(t)
	p.inside("sysctl", "-w", "net.core.somaxconn=64")
	p.tell("listen 8123 5")
	c := p.change(cause.ChangeBacklog)
	c.Addr, c.Port, c.Value = "0.0.0.0", 8123, "511"
	d, _ := For(c.Kind)
	was, err := d.Prepare(c)
	must(t, err)
	if do, _ := d.Commands(c, was); !strings.Contains(do[0].String(), "not 511: net.core.somaxconn is 64") {
		t.Errorf("the limit is not told: %q", do)
	}
	must(t, d.Apply(c, was))
	check(t, d, c, was, "with", true, "")
	if got := p.sendQ(8123); got[0] != "64" {
		t.Errorf("backlog is %s", got)
	}
	refuses(t, c, "raise that first")

	fd := p.tell("listen 8125 5")
	c.Port, c.Value = 8125, "50"
	was, err = d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	p.tell("relisten %s 9", fd) // the program itself, as when it is reloaded
	check(t, d, c, was, "changed by another", false, "9")
	p.tell("close %s", fd)
	isGone(t, c, was)
}

func TestBacklogOfUnixSocket(t *testing.T) {
	p := newChild(t)
	path := filepath.Join(t.TempDir(), "s")
	p.tell("listenunix %s 3", path)
	c := p.change(cause.ChangeBacklog)
	c.Path, c.Value = path, "128"
	dump := func() string { return p.inside("ss", "-Hlxn") }
	was := cycle(t, c, dump, func() error {
		if f := strings.Fields(dump()); len(f) < 4 || f[3] != "128" {
			return fmt.Errorf("%q", f)
		}
		return nil
	})
	if was.Was != "3" {
		t.Errorf("was %q", was.Was)
	}
	c.Path = "/no/such/socket"
	refuses(t, c, "nothing listens")
}

func TestBacklogOfAnothersPort(t *testing.T) {
	p := newChild(t)
	p.tell("listen 8123 5")
	end := startInside(t, p)
	defer end()
	c := p.change(cause.ChangeBacklog)
	c.Port, c.Value = 8123, "100"
	c.PID = otherIn(t, c.NetNS, p.pid)
	refuses(t, c, fmt.Sprintf("belongs to process %d", p.pid))
	c.PID, c.Value = p.pid, "many"
	refuses(t, c, "not a number")
}

// otherIn is a process of the namespace that is not pid.
func otherIn(t *testing.T, inode uint64, pid int) int {
	t.Helper()
	for _, p := range allPIDs() {
		if p == pid {
			continue
		}
		if ns, err := openPlace(p, inode); err == nil {
			ns.Close()
			return p
		}
	}
	t.Fatal("no other process in the namespace")
	return 0
}
