package change

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

func (c *child) qdiscs() string { return c.inside("tc", "-d", "qdisc", "show") }

func newVeth(t *testing.T) *child {
	t.Helper()
	needTool(t, "tc", "ip")
	p := newChild(t)
	p.inside("ip", "link", "add", "v0", "mtu", "1400", "type", "veth", "peer", "name", "v1")
	p.inside("ip", "link", "set", "v0", "up")
	p.inside("ip", "link", "set", "v1", "up")
	return p
}

func TestQdisc(t *testing.T) {
	for _, c := range []struct{ old, value, want string }{
		{"tbf rate 5mbit burst 16kb latency 50ms", "", "noqueue"},
		{"tbf rate 5mbit burst 16kb limit 30000", "tbf rate 50mbit burst 32kb limit 90000", "rate 50Mbit"},
		{"tbf rate 12gbit burst 1mb limit 90000 peakrate 13gbit mtu 9000", "pfifo limit 77", "limit 77p"},
		{"pfifo limit 5", "", "noqueue"},
		{"bfifo limit 5000", "pfifo_fast", "pfifo_fast"},
		{"netem delay 10ms 2ms loss 5% 25% duplicate 1% reorder 3% 50%", "", "noqueue"},
		{"netem loss gemodel 1% 10% 70% 0.1% rate 5mbit", "", "noqueue"},
		{"fq_codel limit 77 target 3ms", "", "noqueue"},
		{"fq limit 77 maxrate 5mbit", "", "noqueue"},
		{"sfq perturb 10", "", "noqueue"},
		{"cake bandwidth 5mbit", "", "noqueue"},
		{"", "pfifo limit 78", "limit 78p"},
	} {
		t.Run(c.old, func(t *testing.T) {
			p := newVeth(t)
			if c.old != "" {
				if out, err := p.try(append([]string{"tc", "qdisc", "add", "dev", "v0", "root", "handle", "7:"}, strings.Fields(c.old)...)...); err != nil {
					t.Skipf("SKIPPED: this kernel has no %s: %s", strings.Fields(c.old)[0], strings.TrimSpace(out))
				}
			}
			change := p.change(cause.ChangeQdisc)
			change.Interface, change.Name, change.Value = "v0", "root", c.value
			was := cycle(t, change, p.qdiscs, func() error {
				if !strings.Contains(p.inside("tc", "qdisc", "show", "dev", "v0"), c.want) {
					return fmt.Errorf("not %s", c.want)
				}
				return nil
			})
			d, _ := For(change.Kind)
			must(t, d.Apply(change, was))
			p.inside("tc", "qdisc", "replace", "dev", "v0", "root", "handle", "8:", "pfifo", "limit", "3")
			check(t, d, change, was, "changed by another", false, "pfifo 8:")
			p.inside("ip", "link", "del", "v0")
			isGone(t, change, was)
		})
	}
}

func TestQdiscOfClassAndRefused(t *testing.T) {
	p := newVeth(t)
	for _, line := range []string{
		"qdisc add dev v0 root handle 1: htb default 2",
		"class add dev v0 parent 1: classid 1:2 htb rate 5mbit",
		"class add dev v0 parent 1: classid 1:3 htb rate 5mbit",
		"qdisc add dev v0 parent 1:2 handle 20: tbf rate 1mbit burst 16kb limit 30000",
	} {
		p.inside(append([]string{"tc"}, strings.Fields(line)...)...)
	}
	c := p.change(cause.ChangeQdisc)
	c.Interface, c.Name, c.Value = "v0", "parent 1:2", "pfifo limit 50"
	// What a class says of the bytes it has sent is left out.
	dump := func() string {
		return p.qdiscs() + regexp.MustCompile(`(?m)^ .*$`).ReplaceAllString(p.inside("tc", "class", "show", "dev", "v0"), "")
	}
	cycle(t, c, dump, func() error {
		if !strings.Contains(dump(), "parent 1:2 limit 50p") {
			return fmt.Errorf("no pfifo")
		}
		return nil
	})
	c.Value = ""
	refuses(t, c, "name another")
	c.Name = "parent 1:3"
	refuses(t, c, "kernel's default")
	c.Name = "root"
	refuses(t, c, "it has classes")
	c.Name = "egress"
	refuses(t, c, "not a place")
	c.Name, c.Interface = "root", "v1"
	refuses(t, c, ErrAlready.Error())
	c.Value = "none_such"
	refuses(t, c, "tc:")
	c.Interface = "v9"
	refuses(t, c, "no such interface")
	p.inside("tc", "qdisc", "add", "dev", "v1", "root", "handle", "3:", "tbf", "rate", "1mbit", "burst", "16kb", "limit", "30000")
	p.inside("tc", "qdisc", "add", "dev", "v1", "parent", "3:1", "pfifo")
	c.Interface, c.Value = "v1", ""
	refuses(t, c, "below it")
}
