package change

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
)

// perThreadDump is affinity and nice of each thread, read by others' tools.
func (c *child) perThreadDump() string {
	return c.inside("taskset", "-acp", fmt.Sprint(c.pid)) + c.inside("ps", "-L", "-o", "lwp=,ni=", "-p", fmt.Sprint(c.pid))
}

func TestAffinity(t *testing.T) {
	needTool(t, "taskset", "ps")
	if runtime.NumCPU() < 2 {
		t.Skip("SKIPPED: needs two CPUs")
	}
	p := newChild(t)
	one := p.tell("thread")
	p.inside("taskset", "-acp", "0", fmt.Sprint(p.pid))
	p.inside("taskset", "-cp", "0-1", one)
	c := p.change(cause.ChangeAffinity)
	c.Value = "1"
	wide := func() error {
		for line := range strings.Lines(p.inside("taskset", "-acp", fmt.Sprint(p.pid))) {
			if !strings.HasSuffix(strings.TrimSpace(line), ": 1") {
				return fmt.Errorf("%s", line)
			}
		}
		return nil
	}
	was := cycle(t, c, p.perThreadDump, wide)

	d, _ := For(c.Kind)
	must(t, d.Apply(c, was))
	late := p.tell("thread") // one that is started while the change is in force
	check(t, d, c, was, "with a new thread", true, "")
	must(t, d.Undo(c, was))
	if got := p.inside("taskset", "-cp", late); !strings.HasSuffix(strings.TrimSpace(got), ": 0") {
		t.Errorf("the new thread: %s", got)
	}
	must(t, d.Apply(c, was))
	p.inside("taskset", "-acp", "0-1", fmt.Sprint(p.pid))
	if ok, _, now, err := d.Holds(c, was); ok || err != nil || now != "CPUs 0-1" {
		t.Errorf("changed by another: %v %q %v", ok, now, err)
	}
	p.end()
	isGone(t, c, was)
	c.PID = 1 << 22
	refuses(t, c, "gone")
	c.Value = "x"
	refuses(t, c, "not a list")
	c.PID, c.Value = unix.Getpid(), "900"
	refuses(t, c, "no CPU 900")
}

func TestNice(t *testing.T) {
	needTool(t, "ps", "renice")
	p := newChild(t)
	p.inside("renice", "-n", "5", "-p", p.tell("thread"))
	c := p.change(cause.ChangeNice)
	c.Value = "-3"
	was := cycle(t, c, p.perThreadDump, func() error {
		for line := range strings.Lines(p.inside("ps", "-L", "-o", "ni=", "-p", fmt.Sprint(p.pid))) {
			if strings.TrimSpace(line) != "-3" {
				return fmt.Errorf("%s", line)
			}
		}
		return nil
	})
	p.end()
	isGone(t, c, was)
	c.Value = "30"
	refuses(t, c, "not a nice value")
}
