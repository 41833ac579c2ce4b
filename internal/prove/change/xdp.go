package change

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
)

// xdpOld is how an XDP program is attached to a device.
type xdpOld struct {
	Index int    `json:"index"`
	Mode  uint32 `json:"mode"` // XDP_FLAGS_*_MODE
}

// Flags of IFLA_XDP (linux/if_link.h).
const (
	xdpNoReplace = 1 << 0
	xdpGeneric   = 1 << 1
	xdpDriver    = 1 << 2
	xdpHardware  = 1 << 3
)

// The kernel's XDP_ATTACHED_*, and the flag that asks for it.
var xdpModes = map[uint32]uint32{1: xdpDriver, 2: xdpGeneric, 3: xdpHardware}

func readXDP(c *cause.Change) (*xdpOld, *pinned, error) {
	l, err := netlink.LinkByName(c.Interface)
	if err != nil {
		return nil, nil, errors.New("there is no such interface")
	}
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return nil, nil, fmt.Errorf("none is attached: %w", ErrAlready)
	}
	if c.Rule.Handle != 0 && uint64(x.ProgId) != c.Rule.Handle {
		return nil, nil, fmt.Errorf("it is program %d now and not %d: observe anew", x.ProgId, c.Rule.Handle)
	}
	mode, ok := xdpModes[x.AttachMode]
	if !ok {
		return nil, nil, errors.New("it is attached in several ways at once: not taken away")
	}
	index := l.Attrs().Index
	if err := ownedByLink(index, x.ProgId); err != nil {
		return nil, nil, err
	}
	p, err := keepable(x.ProgId)
	return &xdpOld{Index: index, Mode: mode}, p, err
}

// ownedByLink says no to a program that a BPF link holds: only its owner can
// let go of it.
func ownedByLink(index int, program uint32) error {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			continue
		}
		if x := info.XDP(); x != nil && int(x.Ifindex) == index && uint32(info.Program) == program {
			return errors.New("the program that made it holds it by a BPF link: end that program instead")
		}
	}
	return nil
}

func (x *xdpOld) word() string {
	return map[uint32]string{xdpGeneric: "xdpgeneric", xdpDriver: "xdpdrv", xdpHardware: "xdpoffload"}[x.Mode]
}

// program is what is attached now, 0 when nothing is.
func (x *xdpOld) program() (netlink.Link, uint32, error) {
	l, err := linkAt(x.Index)
	if err != nil {
		return nil, 0, err
	}
	if a := l.Attrs().Xdp; a != nil && a.Attached {
		return l, a.ProgId, nil
	}
	return l, 0, nil
}

func (x *xdpOld) detach(p *pinned) error {
	l, now, err := x.program()
	if err != nil {
		return err
	}
	if now != p.ID {
		return fmt.Errorf("it is program %d now and not %d", now, p.ID)
	}
	return refused(netlink.LinkSetXdpFdWithFlags(l, -1, int(x.Mode)), "CAP_NET_ADMIN")
}

func (x *xdpOld) present(p *pinned) (changeState, string, error) {
	_, now, err := x.program()
	switch {
	case err != nil:
		return foreign, "", err
	case now == 0:
		return holds, "", nil
	case now == p.ID:
		return before, "", nil
	}
	return foreign, fmt.Sprintf("program %d", now), nil
}

func (x *xdpOld) attach(p *pinned) error {
	l, now, err := x.program()
	if err != nil || now == p.ID {
		return err
	}
	prog, err := p.open()
	if err != nil {
		return err
	}
	defer prog.Close()
	flags := int(x.Mode)
	if now == 0 {
		flags |= xdpNoReplace
	}
	err = netlink.LinkSetXdpFdWithFlags(l, prog.FD(), flags)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("program %d is attached in its place", now)
	}
	return refused(err, "CAP_NET_ADMIN")
}
