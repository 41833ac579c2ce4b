package change

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

func TestPipeSize(t *testing.T) {
	p := newChild(t)
	var r, w int
	_, err := fmt.Sscan(p.tell("pipe"), &r, &w)
	must(t, err)
	c := p.change(cause.ChangePipeSize)
	c.FD, c.Value = w, "1000000"
	size := func() string { return p.tell("pipesize %d", r) }
	was := cycle(t, c, size, func() error {
		if got := size(); got != "1048576" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	d, _ := For(c.Kind)
	must(t, d.Apply(c, was))
	p.tell("write %d 200000", w) // more than it held before
	if err := d.Undo(c, was); err == nil || !strings.Contains(err.Error(), "reader has caught up") {
		t.Errorf("undo of a full pipe: %v", err)
	}
	check(t, d, c, was, "full", true, "")
	p.tell("close %d", w)
	check(t, d, c, was, "with only its reader", true, "") // found by the other end
	p.tell("close %d", r)
	isGone(t, c, was)
	c.FD = 0
	c.Value = "x"
	refuses(t, c, "not a size")
	c.Value, c.FD = "65536", 99
	refuses(t, c, "no such descriptor")
	c.FD = atoi(t, p.tell("listen 8123 1"))
	refuses(t, c, "not a pipe")
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(s, &n)
	must(t, err)
	return n
}
