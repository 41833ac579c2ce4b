package change

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
)

func TestRlimit(t *testing.T) {
	p := newChild(t)
	dump := func() string { return p.inside("prlimit", "--noheadings", "--pid", fmt.Sprint(p.pid)) }
	limit := func(name string) string {
		return strings.Join(strings.Fields(p.inside("prlimit", "--noheadings", "--pid", fmt.Sprint(p.pid), "--"+name, "-o", "SOFT,HARD")), ":")
	}
	must(t, unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 40, Max: 200}, nil))
	for _, c := range []struct{ name, value, want string }{
		{"nofile", "150", "150:200"},
		{"nofile", "4096", "4096:4096"},
		{"nproc", "77", "77:" + strings.Split(limit("nproc"), ":")[1]},
	} {
		change := p.change(cause.ChangeRlimit)
		change.Name, change.Value = c.name, c.value
		if c.value == "4096" && !Capable(unix.CAP_SYS_RESOURCE) {
			refuses(t, change, "needs CAP_SYS_RESOURCE")
			continue
		}
		cycle(t, change, dump, func() error {
			if got := limit(c.name); got != c.want {
				return fmt.Errorf("limit is %s, not %s", got, c.want)
			}
			return nil
		})
	}
	c := p.change(cause.ChangeRlimit)
	c.Name, c.Value = "nofile", "2000000000"
	if Capable(unix.CAP_SYS_RESOURCE) {
		refuses(t, c, "fs.nr_open")
	}
	c.Name = "files"
	refuses(t, c, "not a resource")
	c.Name, c.Value = "nofile", "100"
	d, _ := For(c.Kind)
	was, err := d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	must(t, unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 41, Max: 200}, nil))
	check(t, d, c, was, "changed by another", false, "41, hard 200")
	p.end()
	isGone(t, c, was)
	c.PID = 1 << 22
	refuses(t, c, "gone")
}
