package change

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

func TestMTU(t *testing.T) {
	p := newChild(t)
	p.inside("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	p.inside("ip", "link", "set", "v0", "mtu", "900", "up")
	p.inside("ip", "addr", "add", "10.9.8.7/24", "dev", "v0")
	c := p.change(cause.ChangeMTU)
	c.Interface, c.Value = "v0", "1500"
	dump := func() string { return p.inside("ip", "-d", "addr") + p.inside("ip", "route") }
	was := cycle(t, c, dump, func() error {
		if !strings.Contains(dump(), "v0@v1: <NO-CARRIER,BROADCAST,MULTICAST,UP,M-DOWN> mtu 1500") {
			return fmt.Errorf("mtu is not 1500")
		}
		return nil
	})
	d, _ := For(c.Kind)
	must(t, d.Apply(c, was))
	p.inside("ip", "link", "set", "v0", "mtu", "1400")
	check(t, d, c, was, "changed by another", false, "1400")
	c.Value = "1000"
	refuses(t, c, "IPv6 addresses")
	c.Value = "many"
	refuses(t, c, "not an MTU")
	c.Interface, c.Value = "v7", "1500"
	refuses(t, c, "no such interface")
	c.Interface, c.Value = "v0", "1500"
	p.inside("ip", "link", "del", "v0")
	isGone(t, c, was)
	c.Interface, c.Value = "v0", "1500"
	p.inside("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1") // another of that name
	isGone(t, c, was)
}
