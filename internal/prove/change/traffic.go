package change

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vishvananda/netlink"

	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/osthread"
)

// tcObject is a queueing discipline or a filter as the kernel gives it, and
// takes it again (struct tcmsg, linux/rtnetlink.h).
type tcObject struct {
	Index   uint32 `json:"index"` // of the interface
	Handle  uint32 `json:"handle"`
	Parent  uint32 `json:"parent"`
	Info    uint32 `json:"info,omitempty"` // of a filter: preference and protocol
	Kind    string `json:"kind"`
	Options []byte `json:"options,omitempty"`
	Chain   []byte `json:"chain,omitempty"`
	// Tied says that it has what its description leaves out: a table of sizes, or
	// filters shared with other devices.
	Tied bool `json:"tied,omitempty"`
}

const (
	tcRoot    = 0xffffffff // TC_H_ROOT
	tcClsact  = 0xfffffff1 // TC_H_CLSACT, TC_H_INGRESS
	tcmsgSize = 20
)

func (o *tcObject) header() []byte {
	b := make([]byte, tcmsgSize)
	ne := binary.NativeEndian
	ne.PutUint32(b[4:], o.Index)
	ne.PutUint32(b[8:], o.Handle)
	ne.PutUint32(b[12:], o.Parent)
	ne.PutUint32(b[16:], o.Info)
	return b
}

// payload is the message that makes it.
func (o *tcObject) payload() []byte {
	b := nl.Append(o.header(), unix.TCA_KIND, cstring(o.Kind))
	if o.Chain != nil {
		b = nl.Append(b, unix.TCA_CHAIN, o.Chain)
	}
	if o.Options != nil {
		b = nl.Append(b, unix.TCA_OPTIONS, o.Options)
	}
	return b
}

func parseTC(b []byte) (tcObject, bool) {
	if len(b) < tcmsgSize {
		return tcObject{}, false
	}
	ne := binary.NativeEndian
	list := attrs(b[tcmsgSize:])
	o := tcObject{Index: ne.Uint32(b[4:]), Handle: ne.Uint32(b[8:]), Parent: ne.Uint32(b[12:]), Info: ne.Uint32(b[16:]),
		Kind: nl.Text(find(list, unix.TCA_KIND)), Options: find(list, unix.TCA_OPTIONS), Chain: find(list, unix.TCA_CHAIN)}
	o.Tied = find(list, unix.TCA_STAB) != nil || find(list, unix.TCA_INGRESS_BLOCK) != nil || find(list, unix.TCA_EGRESS_BLOCK) != nil
	return o, true
}

// same compares all but the interface.
func (o *tcObject) same(p *tcObject) bool {
	return o.Handle == p.Handle && o.Parent == p.Parent && o.Info == p.Info && o.Kind == p.Kind && bytes.Equal(o.Options, p.Options)
}

// rtnetlink opens the socket in the thread's namespace.
func rtnetlink() (*netlinkSocket, error) {
	sock, err := openNetlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", refused(err, "CAP_NET_ADMIN"))
	}
	return sock, nil
}

// tcList is the objects of an interface: of RTM_GETQDISC, RTM_GETTCLASS, or of
// RTM_GETTFILTER at a parent.
func tcList(sock *netlinkSocket, kind uint16, index, parent uint32) ([]tcObject, error) {
	ask := tcObject{Index: index, Parent: parent}
	list, err := sock.dump(kind, ask.header())
	if err != nil {
		return nil, err
	}
	var out []tcObject
	for _, b := range list {
		// Older kernels give the disciplines of all interfaces.
		if o, ok := parseTC(b); ok && o.Index == index {
			out = append(out, o)
		}
	}
	return out, nil
}

// scratch calls f in a namespace that is made for it and ends with it, where
// what is changed on the loopback interface (index 1) hurts nobody. It gets the
// MTU and queue length of the device that is meant, which some disciplines
// derive figures from.
func scratch(mtu, queue int, f func(sock *netlinkSocket) error) error {
	return osthread.Own(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("no namespace to try it in: %w", refused(err, "CAP_SYS_ADMIN"))
		}
		lo, err := netlink.LinkByIndex(1)
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetMTU(lo, mtu), netlink.LinkSetTxQLen(lo, queue)); err != nil {
			return err
		}
		sock, err := rtnetlink()
		if err != nil {
			return err
		}
		defer sock.Close()
		return f(sock)
	})
}

// tcHandle writes "1:2" as tc(8) does.
func tcHandle(n uint32) string {
	if n == tcRoot {
		return "root"
	}
	if n&0xffff == 0 {
		return fmt.Sprintf("%x:", n>>16)
	}
	return fmt.Sprintf("%x:%x", n>>16, n&0xffff)
}
