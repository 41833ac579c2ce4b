package change

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

func TestSysctlInNamespace(t *testing.T) {
	p := newChild(t)
	outside, err := os.ReadFile("/proc/sys/net/ipv4/tcp_rmem")
	must(t, err)
	for _, c := range []struct{ name, value string }{
		{"net.core.somaxconn", "77"},
		{"net.ipv4.tcp_rmem", "4096 87380 1048576"},
		{"net.ipv4.ip_local_port_range", "20000 20099"},
		{"net/ipv4/conf/lo/rp_filter", "2"},
		{"net.ipv4.tcp_tw_reuse", "1"},
	} {
		change := p.change(cause.ChangeSysctl)
		change.Name, change.Value = c.name, c.value
		file, err := sysctlFile(c.name)
		must(t, err)
		read := func() string { return p.inside("cat", "/proc/sys/"+file) }
		cycle(t, change, func() string { return p.inside("sysctl", "-a", "--pattern", "^net[./]") }, func() error {
			if got := sysctlWords(read()); got != c.value {
				return fmt.Errorf("%s is %s", c.name, got)
			}
			return nil
		})
	}
	if now, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_rmem"); string(now) != string(outside) {
		t.Errorf("the host's tcp_rmem was %q and is %q", outside, now)
	}
}

func TestSysctlChangedByAnother(t *testing.T) {
	p := newChild(t)
	c := p.change(cause.ChangeSysctl)
	c.Name, c.Value = "net.core.somaxconn", "77"
	d, err := For(c.Kind)
	must(t, err)
	was, err := d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	p.inside("sysctl", "-w", "net.core.somaxconn=99")
	check(t, d, c, was, "changed by another", false, "99")

	c.Value = "99"
	if _, err := d.Prepare(c); !errors.Is(err, ErrAlready) {
		t.Errorf("a value that is set already: %v", err)
	}
	p.end()
	isGone(t, c, was)
}

// A change in a namespace survives the process it was entered through, as long
// as another lives there.
func TestSysctlAfterItsProcessEnded(t *testing.T) {
	first := newChild(t)
	second := newChild(t)
	_ = second
	c := first.change(cause.ChangeSysctl)
	c.Name, c.Value = "net.core.somaxconn", "77"
	d, err := For(c.Kind)
	must(t, err)
	was, err := d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	other := startInside(t, first)
	first.end()
	check(t, d, c, was, "by another process", true, "")
	must(t, d.Undo(c, was))
	check(t, d, c, was, "after", false, was.Was)
	other()
	isGone(t, c, was)
}

// Of twins only one is in force: to set one makes the other 0, and undoing has to
// bring both back. These are the host's own, put back at once.
func TestSysctlTwins(t *testing.T) {
	needRoot(t)
	ratio, err := os.ReadFile("/proc/sys/vm/dirty_background_ratio")
	must(t, err)
	octets, err := os.ReadFile("/proc/sys/vm/dirty_background_bytes")
	must(t, err)
	if sysctlWords(string(octets)) != "0" {
		t.Skip("SKIPPED: vm.dirty_background_bytes is set here")
	}
	defer func() { must(t, os.WriteFile("/proc/sys/vm/dirty_background_ratio", ratio, 0o644)) }()
	dump := func() string {
		a, _ := os.ReadFile("/proc/sys/vm/dirty_background_ratio")
		b, _ := os.ReadFile("/proc/sys/vm/dirty_background_bytes")
		return string(a) + string(b)
	}
	for name, value := range map[string]string{"vm.dirty_background_bytes": "104857600", "vm.dirty_background_ratio": "11"} {
		c := &cause.Change{Kind: cause.ChangeSysctl, Name: name, Value: value}
		cycle(t, c, dump, func() error {
			if !strings.Contains(dump(), value) {
				return fmt.Errorf("%q", dump())
			}
			return nil
		})
	}
	must(t, os.WriteFile("/proc/sys/vm/dirty_background_bytes", []byte("209715200"), 0o644))
	cycle(t, &cause.Change{Kind: cause.ChangeSysctl, Name: "vm.dirty_background_ratio", Value: "11"}, dump, func() error {
		if dump() != "11\n0\n" {
			return fmt.Errorf("%q", dump())
		}
		return nil
	})
}

func TestSysctlRefused(t *testing.T) {
	p := newChild(t)
	with := func(name, value string) *cause.Change {
		c := p.change(cause.ChangeSysctl)
		c.Name, c.Value = name, value
		return c
	}
	refuses(t, with("net.core.netdev_max_backlog", "10"), "host")
	refuses(t, with("vm.max_map_count", "100000"), "on the host")
	refuses(t, with("net.ipv4.no_such_thing", "1"), "no such sysctl")
	refuses(t, with("net.ipv6.conf.all.disable_ipv6", "1"), "never changed")
	refuses(t, with("../../etc/passwd", "1"), "not the name")
	refuses(t, with("net.core.somaxconn", "1\n2"), "not a value")
	wrong := with("net.core.somaxconn", "77")
	wrong.NetNS++
	refuses(t, wrong, "not in network namespace")
	wrong = with("net.core.somaxconn", "77")
	wrong.PID = 1 << 22
	refuses(t, wrong, "gone")

	bad := with("net.core.somaxconn", "minus one")
	d, _ := For(bad.Kind)
	was, err := d.Prepare(bad)
	must(t, err)
	if err := d.Apply(bad, was); err == nil || !strings.Contains(err.Error(), "does not take") {
		t.Errorf("apply a value that is none: %v", err)
	}
	check(t, d, bad, was, "after a failure", false, was.Was)
}

// The process's number now belongs to another: nothing is found of the first.
func TestPIDReuse(t *testing.T) {
	p := newChild(t)
	c := p.change(cause.ChangeRlimit)
	c.Name, c.Value = "nofile", "100"
	d, _ := For(c.Kind)
	was, err := d.Prepare(c)
	must(t, err)
	was.Data = []byte(strings.Replace(string(was.Data), `"start":`, `"start":1`, 1))
	isGone(t, c, was)
}

func TestAfterRestart(t *testing.T) {
	p := newChild(t)
	c := p.change(cause.ChangeSysctl)
	c.Name, c.Value = "net.core.somaxconn", "77"
	d, _ := For(c.Kind)
	was, err := d.Prepare(c)
	must(t, err)
	was.Data = []byte(strings.Replace(string(was.Data), BootID(), "another", 1))
	isGone(t, c, was)
	if got := p.inside("sysctl", "-n", "net.core.somaxconn"); strings.TrimSpace(got) == "77" {
		t.Error("it was set all the same")
	}
}

func TestSysctlNames(t *testing.T) {
	for name, want := range map[string]string{
		"net.core.somaxconn":             "net/core/somaxconn",
		"net.ipv4.conf.eth0/1.rp_filter": "net/ipv4/conf/eth0.1/rp_filter",
		"net/ipv4/conf/eth0.1/rp_filter": "net/ipv4/conf/eth0.1/rp_filter",
		"net..core":                      "",
		"":                               "",
		"/etc/passwd":                    "",
		"net.ipv4.//.x":                  "",
	} {
		got, err := sysctlFile(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", name, got, err, want)
		}
	}
}
