package change

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
)

func TestContinue(t *testing.T) {
	p := newChild(t)
	state := func() string {
		_, s, err := startOf(fmt.Sprintf("/proc/%d", p.pid))
		must(t, err)
		if s != 'T' {
			s = 'S' // sleeping or running
		}
		return string(s)
	}
	c := p.change(cause.ChangeContinue)
	refuses(t, c, "runs")
	must(t, unix.Kill(p.pid, unix.SIGSTOP))
	until(t, func() bool { return state() == "T" })
	d, _ := For(c.Kind)
	was, err := d.Prepare(c)
	must(t, err)
	check(t, d, c, was, "before", false, "stopped")
	must(t, d.Undo(c, was))
	must(t, d.Apply(c, was))
	until(t, func() bool { return state() == "S" })
	check(t, d, c, was, "with", true, "")
	for range 2 {
		must(t, d.Undo(c, was))
		until(t, func() bool { return state() == "T" })
	}
	check(t, d, c, was, "after", false, "stopped")
	p.end()
	isGone(t, c, was)
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it was not made")
}
