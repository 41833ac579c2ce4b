package change

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeMTU, kind[mtuState]{
		read: readMTU, apply: applyMTU, present: presentMTU, undo: undoMTU, commands: mtuCommands,
	})
}

type mtuState struct {
	Place place `json:"place"`
	Index int   `json:"index"` // of the interface
	Old   int   `json:"old"`   // bytes
	New   int   `json:"new"`
}

// ipv6MTU is the smallest that IPv6 works with. Below it the kernel takes the
// addresses of the interface away (addrconf_notify, net/ipv6/addrconf.c).
const ipv6MTU = 1280

func readMTU(c *cause.Change) (mtuState, string, error) {
	var s mtuState
	var err error
	if s.New, err = strconv.Atoi(c.Value); err != nil || s.New < 68 || s.New > 1<<20 {
		return s, "", fmt.Errorf("%q is not an MTU", c.Value)
	}
	if s.Place, err = placeOf(c); err != nil {
		return s, "", mtuError(c, err)
	}
	err = s.Place.do(func() error {
		l, err := netlink.LinkByName(c.Interface)
		if err != nil {
			return errors.New("there is no such interface")
		}
		s.Index, s.Old = l.Attrs().Index, l.Attrs().MTU
		if _, err := os.Stat("/proc/sys/net/ipv6/conf/" + c.Interface); err == nil && s.New < ipv6MTU && s.Old >= ipv6MTU {
			return fmt.Errorf("below %d the kernel takes its IPv6 addresses away, and they could not be put back", ipv6MTU)
		}
		if !Capable(unix.CAP_NET_ADMIN) {
			return refused(unix.EPERM, "CAP_NET_ADMIN")
		}
		return nil
	})
	if err != nil {
		return s, "", mtuError(c, err)
	}
	if s.New == s.Old {
		err = fmt.Errorf("MTU of %s is %d: %w", c.Interface, s.Old, ErrAlready)
	}
	return s, fmt.Sprint(s.Old), err
}

func mtuError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("MTU of %s: %w", c.Interface, err)
}

func (s *mtuState) set(mtu int) error {
	return s.Place.do(func() error {
		l, err := linkAt(s.Index)
		if err != nil || l.Attrs().MTU == mtu {
			return err
		}
		err = netlink.LinkSetMTU(l, mtu)
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("the device does not take %d bytes", mtu)
		}
		return refused(err, "CAP_NET_ADMIN")
	})
}

// linkAt is the interface with an index, ErrGone when it was taken away. An
// index is not given twice until all have been used up.
func linkAt(index int) (netlink.Link, error) {
	l, err := netlink.LinkByIndex(index)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) || errors.Is(err, unix.ENODEV) {
		return nil, ErrGone
	}
	return l, err
}

func applyMTU(c *cause.Change, s *mtuState) error { return mtuError(c, s.set(s.New)) }

func undoMTU(c *cause.Change, s *mtuState) error { return mtuError(c, s.set(s.Old)) }

func presentMTU(c *cause.Change, s *mtuState) (changeState, string, error) {
	now := 0
	err := s.Place.do(func() error {
		l, err := linkAt(s.Index)
		if err == nil {
			now = l.Attrs().MTU
		}
		return err
	})
	switch {
	case err != nil:
		return foreign, "", mtuError(c, err)
	case now == s.New:
		return holds, "", nil
	case now == s.Old:
		return before, "", nil
	}
	return foreign, fmt.Sprint(now), nil
}

func mtuCommands(c *cause.Change, s *mtuState) (do, undo []shell.Command) {
	set := func(mtu int) []shell.Command {
		return []shell.Command{s.Place.prefix().Then(shell.Line("ip link set dev %s mtu %s", shell.Word(c.Interface), mtu))}
	}
	return set(s.New), set(s.Old)
}
