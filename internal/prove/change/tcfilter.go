package change

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/shell"
)

// tcFilter is a filter of traffic control.
type tcFilter struct {
	Object tcObject `json:"object"`
}

// Attributes of the kinds of filters (linux/pkt_cls.h).
const (
	bpfFD, bpfFlagsGen, bpfTag, bpfID = 6, 9, 10, 11
	u32Count, u32Flags                = 9, 11
	matchallFlags, matchallCount      = 3, 4
	flowerFlags                       = 22
	skipFlags                         = 0x3 // TCA_CLS_FLAGS_SKIP_HW and _SKIP_SW; others are only told
)

// given are the attributes of each kind that the kernel gives and does not take,
// flags those whose bits it gives are more than it takes. Other kinds are not
// taken away.
var given = map[string][]uint16{"bpf": {bpfTag, bpfID}, "u32": {u32Count}, "matchall": {matchallCount}, "flower": {}}

var flags = map[string]uint16{"bpf": bpfFlagsGen, "u32": u32Flags, "matchall": matchallFlags, "flower": flowerFlags}

var tcParents = map[string]uint32{"ingress": tcClsact&^0xffff | 0xfff2, "egress": tcClsact&^0xffff | 0xfff3}

func readTCFilter(c *cause.Change) (*tcFilter, *pinned, error) {
	r := c.Rule
	parent, ok := tcParents[r.Chain]
	if !ok {
		return nil, nil, fmt.Errorf("%q is neither ingress nor egress", r.Chain)
	}
	l, err := netlink.LinkByName(c.Interface)
	if err != nil {
		return nil, nil, errors.New("there is no such interface")
	}
	sock, err := rtnetlink()
	if err != nil {
		return nil, nil, err
	}
	defer sock.Close()
	all, err := filtersAt(sock, uint32(l.Attrs().Index), parent)
	if err != nil {
		return nil, nil, refused(err, "CAP_NET_ADMIN")
	}
	var found []tcObject
	for _, o := range all {
		if (r.Handle == 0 || uint64(o.Handle) == r.Handle) && (r.Index == 0 || o.Info>>16 == uint32(r.Index)) && (r.Table == "" || o.Kind == r.Table) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil, errors.New("there is no such filter any more (one that is attached by a BPF link is its owner's)")
	case 1:
	default:
		return nil, nil, fmt.Errorf("%d filters are meant: name one by its preference and handle", len(found))
	}
	f := &tcFilter{found[0]}
	if _, known := given[f.Object.Kind]; !known {
		return nil, nil, fmt.Errorf("filters of kind %s cannot be put back exactly: not taken away", f.Object.Kind)
	}
	for _, o := range all {
		if o.Info == f.Object.Info && o.Handle != f.Object.Handle && bytes.Equal(o.Chain, f.Object.Chain) {
			return nil, nil, errors.New("others have the same preference, and their order could not be put back: not taken away")
		}
	}
	return f.tried(l)
}

// tried rehearses putting it back on another device.
func (f *tcFilter) tried(l netlink.Link) (*tcFilter, *pinned, error) {
	var p *pinned
	if f.Object.Kind == "bpf" {
		id := find(attrs(f.Object.Options), bpfID)
		if len(id) < 4 {
			return nil, nil, errors.New("it has no BPF program that could be kept: not taken away")
		}
		var err error
		if p, err = keepable(binary.NativeEndian.Uint32(id)); err != nil {
			return nil, nil, err
		}
	}
	err := scratch(l.Attrs().MTU, l.Attrs().TxQLen, func(sock *netlinkSocket) error {
		clsact := tcObject{Index: 1, Handle: 0xffff0000, Parent: tcClsact, Kind: "clsact"}
		if err := sock.Ask(nl.Message{Kind: unix.RTM_NEWQDISC, Flags: unix.NLM_F_CREATE, Payload: clsact.payload()}); err != nil {
			return fmt.Errorf("clsact: %w", err)
		}
		again := *f
		again.Object.Index = 1
		if err := again.add(sock, p); err != nil {
			return fmt.Errorf("it could not be put back (%w): not taken away", err)
		}
		there, err := again.find(sock)
		if err == nil && (there == nil || !again.reads(there)) {
			err = errors.New("it would not be the same when it is put back: not taken away")
		}
		return err
	})
	return f, p, err
}

// filtersAt leaves out the heads under which filters hang: they have no options
// of their own, or no keys.
func filtersAt(sock *netlinkSocket, index, parent uint32) ([]tcObject, error) {
	list, err := tcList(sock, unix.RTM_GETTFILTER, index, parent)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, nil // no clsact or ingress discipline
	}
	var out []tcObject
	for _, o := range list {
		table := o.Kind == "u32" && o.Handle&0xfffff == 0 // a hash table
		if o.Handle != 0 && o.Options != nil && !table {
			out = append(out, o)
		}
	}
	return out, err
}

// find gives the filter in the place of f, nil when there is none.
func (f *tcFilter) find(sock *netlinkSocket) (*tcObject, error) {
	if _, err := linkAt(int(f.Object.Index)); err != nil {
		return nil, err
	}
	list, err := filtersAt(sock, f.Object.Index, f.Object.Parent)
	for i := range list {
		if o := &list[i]; o.Handle == f.Object.Handle && o.Info == f.Object.Info && bytes.Equal(o.Chain, f.Object.Chain) {
			return o, nil
		}
	}
	return nil, err
}

// options is the attributes of a filter that the kernel takes, of a BPF filter
// with a descriptor of its program.
func (f *tcFilter) options(fd int) []byte {
	var out []byte
	kind := f.Object.Kind
	for _, a := range attrs(f.Object.Options) {
		k := a.kind & nl.KindMask
		told := false
		for _, g := range given[kind] {
			told = told || g == k
		}
		switch {
		case told:
		case k == flags[kind] && len(a.value) == 4:
			out = nl.Append(out, a.kind, binary.NativeEndian.AppendUint32(nil, binary.NativeEndian.Uint32(a.value)&skipFlags))
		default:
			out = nl.Append(out, a.kind, a.value)
		}
	}
	if fd >= 0 {
		out = nl.Append(out, bpfFD, binary.NativeEndian.AppendUint32(nil, uint32(fd)))
	}
	return out
}

func (f *tcFilter) add(sock *netlinkSocket, p *pinned) error {
	o, fd := f.Object, -1
	if p != nil {
		prog, err := p.open()
		if err != nil {
			return err
		}
		defer prog.Close()
		fd = prog.FD()
	}
	o.Options = f.options(fd)
	return sock.Ask(nl.Message{Kind: unix.RTM_NEWTFILTER, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Payload: o.payload()})
}

// reads compares two filters by what they do. Counters and times of their
// actions are left out.
func (f *tcFilter) reads(o *tcObject) bool {
	a, b := attrs(f.Object.Options), attrs(o.Options)
	told := func(k uint16) bool {
		return k == u32Count && f.Object.Kind == "u32" || k == matchallCount && f.Object.Kind == "matchall"
	}
	print := func(list []attr) string {
		var out strings.Builder
		for _, x := range list {
			k := x.kind & nl.KindMask
			switch {
			case told(k):
			case k == flags[f.Object.Kind] && len(x.value) > 0: // whether hardware has it is known there
				fmt.Fprintf(&out, "%d=%x ", k, x.value[0]&skipFlags)
			case k == actionsOf[f.Object.Kind] && k != 0:
				fmt.Fprintf(&out, "%d=%s ", k, actions(x.value))
			default:
				fmt.Fprintf(&out, "%d=%x ", k, x.value)
			}
		}
		return out.String()
	}
	return f.Object.Kind == o.Kind && print(a) == print(b)
}

// actionsOf is the attribute with the actions of a filter.
var actionsOf = map[string]uint16{"bpf": 1, "u32": 7, "matchall": 2, "flower": 3}

// actions prints the kinds of actions and their parameters, the longest of
// their attributes that is no statistic being the second.
func actions(b []byte) string {
	var out strings.Builder
	for _, a := range attrs(b) {
		list := attrs(a.value)
		fmt.Fprintf(&out, "%s(", nl.Text(find(list, 1)))
		for _, o := range attrs(find(list, 2)) {
			if len(o.value) != 32 { // struct tcf_t: when it was last used
				fmt.Fprintf(&out, "%d=%x ", o.kind&nl.KindMask, o.value)
			}
		}
		out.WriteString(")")
	}
	return out.String()
}

func (f *tcFilter) remove() error {
	sock, err := rtnetlink()
	if err != nil {
		return err
	}
	defer sock.Close()
	if there, err := f.find(sock); err != nil || there == nil || !f.reads(there) {
		return errors.Join(err, ErrGone)
	}
	o := f.Object
	o.Options = nil
	return refused(sock.Ask(nl.Message{Kind: unix.RTM_DELTFILTER, Payload: o.payload()}), "CAP_NET_ADMIN")
}

func (f *tcFilter) present() (changeState, string, error) {
	sock, err := rtnetlink()
	if err != nil {
		return foreign, "", err
	}
	defer sock.Close()
	there, err := f.find(sock)
	switch {
	case err != nil:
		return foreign, "", err
	case there == nil:
		return holds, "", nil
	case f.reads(there):
		return before, "", nil
	}
	return foreign, "another filter " + there.Kind, nil
}

func (f *tcFilter) restore(p *pinned) error {
	sock, err := rtnetlink()
	if err != nil {
		return err
	}
	defer sock.Close()
	there, err := f.find(sock)
	if err != nil {
		return err
	}
	if there != nil {
		if f.reads(there) {
			return nil
		}
		return errors.New("another filter is in its place")
	}
	if err := f.add(sock, p); err != nil {
		return fmt.Errorf("put back: %w", refused(err, "CAP_NET_ADMIN"))
	}
	if there, err = f.find(sock); err == nil && (there == nil || !f.reads(there)) {
		err = errors.New("it was put back and reads differently")
	}
	return err
}

func (f *tcFilter) way() string {
	for name, parent := range tcParents {
		if parent == f.Object.Parent {
			return name
		}
	}
	return tcHandle(f.Object.Parent)
}

// words name the filter as tc(8) does.
func (f *tcFilter) words() shell.Command {
	protocol := bits.ReverseBytes16(uint16(f.Object.Info))
	handle := fmt.Sprintf("0x%x", f.Object.Handle)
	if f.Object.Kind == "u32" {
		handle = fmt.Sprintf("%x:%x:%x", f.Object.Handle>>20, f.Object.Handle>>12&0xff, f.Object.Handle&0xfff)
	}
	return shell.Line("protocol %s pref %s handle %s %s", map[bool]string{true: "all", false: fmt.Sprintf("0x%04x", protocol)}[protocol == unix.ETH_P_ALL], f.Object.Info>>16, handle, f.Object.Kind)
}
