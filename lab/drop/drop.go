package drop

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/slowray/slowray/lab/netns"
)

// Rule says which packets are lost. The zero value loses none.
type Rule struct {
	Every   int  // each Every-th packet that matches, to the packet
	PPM     int  // of a million packets that match, by chance
	Port    int  // match TCP segments from or to this port only; 0 = every packet of IPv4 and IPv6
	Payload bool // match TCP segments with payload only
	Egress  bool // of the packets that leave by the device, not of those that come in
	XDP     bool // of those that come in, by chance and whatever they are, before the kernel has looked at them
}

// None reports whether nothing is lost.
func (r Rule) None() bool { return r.Every == 0 && r.PPM == 0 }

// Counters of a dropper, in packets.
type Counters struct {
	Packets uint64 `json:"packets"` // that came in at the device, of any protocol
	Matches uint64 `json:"matches"`
	Dropped uint64 `json:"dropped"`
}

// Dropper loses packets of one device.
type Dropper struct {
	objects objectObjects
	index   int
	ns      *os.File
	xdp     link.Link
}

// Attach begins to lose packets that come in at a device. It needs CAP_BPF and
// CAP_NET_ADMIN. The device's clsact qdisc must be free.
func Attach(ns *os.File, device string, rule Rule) (*Dropper, error) {
	d, err := attach(ns, device, rule)
	if err != nil {
		return nil, fmt.Errorf("drop: %s: %w", device, err)
	}
	return d, nil
}

func attach(ns *os.File, device string, rule Rule) (*Dropper, error) {
	rlimit.RemoveMemlock() // needed before Linux 5.11 only
	spec, err := loadObject()
	if err != nil {
		return nil, err
	}
	payload := uint8(0)
	if rule.Payload {
		payload = 1
	}
	for name, value := range map[string]any{
		"every": uint32(rule.Every), "ppm": uint32(rule.PPM), "port": uint16(rule.Port), "payload": payload,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	d := &Dropper{}
	if err := spec.LoadAndAssign(&d.objects, nil); err != nil {
		return nil, err
	}
	if d.ns, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", ns.Fd())); err != nil {
		return nil, errors.Join(err, d.objects.Close())
	}
	err = netns.Do(ns, func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		d.index = dev.Index
		if rule.XDP {
			d.xdp, err = attachXDP(dev.Index, rule.PPM)
			return err
		}
		return attachClsact(dev.Index, d.objects.Lose.FD(), "lab/lose", rule.Egress)
	})
	if err != nil {
		return nil, errors.Join(err, d.objects.Close(), d.ns.Close())
	}
	return d, nil
}

// attachXDP loses packets by chance as an XDP program of the kernel's own driver model
// does: it counts nothing.
func attachXDP(index, ppm int) (link.Link, error) {
	const pass, lose = 2, 1 // XDP_PASS, XDP_DROP (include/uapi/linux/bpf.h)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lose", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.FnGetPrandomU32.Call(),
		asm.Mov.Reg32(asm.R1, asm.R0),
		asm.Mod.Imm(asm.R1, 1_000_000),
		asm.Mov.Imm(asm.R0, lose),
		asm.JLT.Imm(asm.R1, int32(ppm), "end"),
		asm.Mov.Imm(asm.R0, pass),
		asm.Return().WithSymbol("end"),
	}})
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	return link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: link.XDPGenericMode})
}

// Counters since Attach.
func (d *Dropper) Counters() (Counters, error) {
	var c Counters
	return c, errors.Join(d.objects.Packets.Get(&c.Packets), d.objects.Matches.Get(&c.Matches), d.objects.Dropped.Get(&c.Dropped))
}

// Close ends the losses, unless the namespace is gone already.
func (d *Dropper) Close() error {
	err := netns.Do(d.ns, func() error {
		if d.xdp != nil {
			return d.xdp.Close()
		}
		return detachClsact(d.index)
	})
	return errors.Join(err, d.objects.Close(), d.ns.Close())
}
