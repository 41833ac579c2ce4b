package change

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/host"
)

// mountBPF mounts a BPF file system of the test's own.
func mountBPF(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Skipf("SKIPPED: no BPF file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	return dir
}

func program(t *testing.T, kind ebpf.ProgramType, result int32) *ebpf.Program {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "GPL", Name: "dropper",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, result), asm.Return()}})
	must(t, err)
	return prog
}

// do calls f in the child's namespace.
func (c *child) do(f func() error) {
	c.t.Helper()
	ns, err := host.Default().OpenNetNS(c.pid)
	must(c.t, err)
	defer ns.Close()
	must(c.t, ns.Do(f))
}

// What tc says of time and traffic is left out.
var tcCounts = regexp.MustCompile(`(?m)(^\s*Sent .*$|^\s*backlog .*$| installed \d+ sec| used \d+ sec| ref \d+ bind \d+|not_in_hw)`)

func (c *child) filters() string {
	return tcCounts.ReplaceAllString(c.inside("tc", "-d", "filter", "show", "dev", "v0", "ingress")+c.inside("tc", "-d", "filter", "show", "dev", "v0", "egress"), "")
}

func TestTCFilters(t *testing.T) {
	p := newVeth(t)
	dir := mountBPF(t)
	p.inside("tc", "qdisc", "add", "dev", "v0", "clsact")
	prog := program(t, ebpf.SchedCLS, 2)
	must(t, prog.Pin(dir+"/t"))
	info, err := prog.Info()
	must(t, err)
	id, _ := info.ID()
	p.inside("tc", "filter", "add", "dev", "v0", "ingress", "pref", "7", "handle", "3", "bpf", "object-pinned", dir+"/t", "direct-action")
	// Now only the filter holds the program.
	must(t, os.Remove(dir+"/t"))
	must(t, prog.Close())
	p.inside("tc", "filter", "add", "dev", "v0", "ingress", "pref", "9", "protocol", "ip", "u32", "match", "ip", "dport", "80", "0xffff", "classid", "1:7")
	have := [][]string{{"bpf", "ingress", "7"}, {"u32", "ingress", "9"}}
	for _, f := range []string{
		"egress pref 5 matchall action drop",
		"egress pref 6 protocol ip flower ip_proto tcp dst_port 80 action drop",
		"egress pref 8 matchall action police rate 1mbit burst 32k conform-exceed drop",
		"egress pref 9 protocol ip u32 match u32 0 0 action police rate 1mbit burst 32k conform-exceed drop",
	} {
		words := strings.Fields(f)
		if out, err := p.try(append([]string{"tc", "filter", "add", "dev", "v0"}, words...)...); err != nil {
			t.Logf("SKIPPED: this kernel has no filter %q: %s", f, strings.Join(strings.Fields(out), " "))
			continue
		}
		have = append(have, []string{map[bool]string{true: "matchall", false: words[5]}[words[3] == "matchall"], words[0], words[2]})
	}
	d, _ := For(cause.ChangeFilter)
	kept, err := bpffs() // the host's, where it has one mounted
	must(t, err)
	for _, f := range have {
		c := p.change(cause.ChangeFilter)
		c.Interface, c.Rule = "v0", &cause.Rule{Tool: "tc", Table: f[0], Chain: f[1], Index: atoi(t, f[2]), Text: "x"}
		was := cycle(t, c, p.filters, func() error {
			if strings.Contains(p.filters(), "pref "+f[2]+" "+f[0]) {
				return fmt.Errorf("it is still there")
			}
			return nil
		})
		if left, _ := filepath.Glob(kept + fmt.Sprintf("/slowray/slowray-kept-%d", id)); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
		if f[0] != "bpf" {
			continue
		}
		// The program is kept by a file, though nobody has it open.
		must(t, d.Apply(c, was))
		if _, err := ebpf.NewProgramFromID(id); err != nil {
			t.Errorf("the program was lost: %v", err)
		}
		p.inside("tc", "filter", "add", "dev", "v0", "ingress", "pref", "7", "handle", "3", "bpf", "object-pinned", kept+fmt.Sprintf("/slowray/slowray-kept-%d", id), "direct-action", "skip_hw")
		check(t, d, c, was, "changed by another", false, "another filter bpf")
		if err := d.Undo(c, was); err == nil || !strings.Contains(err.Error(), "in its place") {
			t.Errorf("undo over another's filter: %v", err)
		}
		p.inside("tc", "filter", "del", "dev", "v0", "ingress", "pref", "7")
		must(t, d.Undo(c, was))
	}
	c := p.change(cause.ChangeFilter)
	c.Interface, c.Rule = "v0", &cause.Rule{Tool: "tc", Chain: "ingress", Index: 77, Text: "x"}
	refuses(t, c, "no such filter")
	c.Rule.Index = 0
	refuses(t, c, "name one")
	c.Rule.Chain = "forward"
	refuses(t, c, "neither")
	c.Rule.Tool = "pf"
	refuses(t, c, "cannot be changed")
	c.Rule = nil
	refuses(t, c, "no filter")
	c.Rule = &cause.Rule{Tool: "tc", Chain: "ingress", Index: 9}
	was, err := d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	p.inside("ip", "link", "del", "v0")
	isGone(t, c, was)
}

func TestBPFWithoutPlaceToKeepIt(t *testing.T) {
	needRoot(t)
	if dir, err := bpffs(); err == nil {
		t.Skipf("SKIPPED: there is a BPF file system at %s", dir)
	}
	p := newVeth(t)
	prog := program(t, ebpf.XDP, 1)
	defer prog.Close()
	p.do(func() error {
		l, err := netlink.LinkByName("v0")
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(l, prog.FD(), xdpGeneric)
	})
	c := p.change(cause.ChangeFilter)
	c.Interface, c.Rule = "v0", &cause.Rule{Tool: "xdp", Text: "x"}
	refuses(t, c, "would be lost")
}

// A BPF file system is mounted so that all may write to it: what another has put
// there in slowray's place is not used.
func TestBPFIsKeptInNobodysHands(t *testing.T) {
	p := newVeth(t)
	dir := mountBPF(t)
	if kept, err := bpffs(); err != nil || kept != dir {
		t.Skipf("SKIPPED: the host has a BPF file system of its own at %s, which is left alone (%v)", kept, err)
	}
	prog := program(t, ebpf.XDP, 1)
	defer prog.Close()
	p.do(func() error {
		l, err := netlink.LinkByName("v0")
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(l, prog.FD(), xdpGeneric)
	})
	c := p.change(cause.ChangeFilter)
	c.Interface, c.Rule = "v0", &cause.Rule{Tool: "xdp", Text: "x"}
	d, _ := For(cause.ChangeFilter)
	was, err := d.Prepare(c)
	must(t, err)
	his := filepath.Join(dir, "slowray")
	must(t, os.Mkdir(his, 0o755))
	must(t, os.Chown(his, 65534, 65534))
	if err := d.Apply(c, was); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("kept in another's directory: %v", err)
	}
	refuses(t, c, "belongs to user 65534")
	if left, _ := filepath.Glob(his + "/*"); len(left) != 0 {
		t.Errorf("%v is in his directory", left)
	}
	must(t, d.Undo(c, was))
	must(t, os.Remove(his))
	must(t, os.Symlink(t.TempDir(), his))
	must(t, os.Lchown(his, 65534, 65534))
	refuses(t, c, "belongs to user 65534")
}

func TestXDP(t *testing.T) {
	for name, mode := range map[string]int{"generic": xdpGeneric, "driver": xdpDriver} {
		t.Run(name, func(t *testing.T) {
			p := newVeth(t)
			dir := mountBPF(t)
			prog := program(t, ebpf.XDP, 1)
			p.do(func() error {
				l, err := netlink.LinkByName("v0")
				if err != nil {
					return err
				}
				return netlink.LinkSetXdpFdWithFlags(l, prog.FD(), mode)
			})
			must(t, prog.Close())
			c := p.change(cause.ChangeFilter)
			c.Interface, c.Rule = "v0", &cause.Rule{Tool: "xdp", Text: "x"}
			dump := func() string { return p.inside("ip", "-d", "link", "show", "v0") }
			was := cycle(t, c, dump, func() error {
				if strings.Contains(dump(), "xdp") {
					return fmt.Errorf("%s", dump())
				}
				return nil
			})
			if left, _ := filepath.Glob(dir + "/slowray*"); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
			d, _ := For(c.Kind)
			must(t, d.Apply(c, was))
			other := program(t, ebpf.XDP, 2)
			defer other.Close()
			p.do(func() error {
				l, err := netlink.LinkByName("v0")
				if err != nil {
					return err
				}
				return netlink.LinkSetXdpFdWithFlags(l, other.FD(), mode)
			})
			if ok, _, now, err := d.Holds(c, was); ok || err != nil || !strings.HasPrefix(now, "program ") {
				t.Errorf("changed by another: %v %q %v", ok, now, err)
			}
			refuses(t, func() *cause.Change { x := *c; x.Rule = &cause.Rule{Tool: "xdp", Handle: 1 << 40}; return &x }(), "observe anew")
			p.inside("ip", "link", "del", "v0")
			isGone(t, c, was)
		})
	}
}

func TestXDPOfABPFLink(t *testing.T) {
	p := newVeth(t)
	mountBPF(t)
	prog := program(t, ebpf.XDP, 2)
	defer prog.Close()
	var l link.Link
	p.do(func() (err error) {
		dev, err := netlink.LinkByName("v0")
		if err != nil {
			return err
		}
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Attrs().Index, Flags: link.XDPGenericMode})
		return err
	})
	defer l.Close()
	c := p.change(cause.ChangeFilter)
	c.Interface, c.Rule = "v0", &cause.Rule{Tool: "xdp", Text: "x"}
	refuses(t, c, "BPF link")
	c.Interface = "v1"
	refuses(t, c, ErrAlready.Error())
}
