package change

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeQdisc, kind[qdiscState]{
		read: readQdisc, apply: applyQdisc, present: presentQdisc, undo: undoQdisc, commands: qdiscCommands,
		whole: func(s *qdiscState) bool { return s.At != 0 && (s.Old != nil || len(s.Words) > 0) },
	})
}

type qdiscState struct {
	Place  place     `json:"place"`
	Index  uint32    `json:"index"`
	At     uint32    `json:"at"`            // the parent: tcRoot, or a class
	Old    *tcObject `json:"old,omitempty"` // nil: the kernel's default
	Words  []string  `json:"words,omitempty"`
	Handle uint32    `json:"handle,omitempty"` // of the new one
}

// trees are disciplines with classes, which have disciplines and filters in
// turn.
var trees = []string{"htb", "hfsc", "prio", "drr", "qfq", "ets", "cbq", "mq", "mqprio", "multiq", "taprio", "dsmark", "atm"}

func readQdisc(c *cause.Change) (qdiscState, string, error) {
	var s qdiscState
	var err error
	if s.At, err = qdiscPlace(c.Name); err != nil {
		return s, "", err
	}
	s.Words = strings.Fields(c.Value)
	if strings.ContainsAny(c.Value, "\x00\n") || len(s.Words) > 0 && strings.HasPrefix(s.Words[0], "-") {
		return s, "", fmt.Errorf("%q is not a queueing discipline", c.Value)
	}
	if s.Place, err = placeOf(c); err != nil {
		return s, "", qdiscError(c, err)
	}
	err = s.Place.do(func() error { return s.look(c) })
	return s, s.was(), qdiscError(c, err)
}

func (s *qdiscState) was() string {
	if s.Old == nil {
		return "the kernel's default"
	}
	return s.Old.Kind + " " + tcHandle(s.Old.Handle)
}

func qdiscError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("queueing discipline at %s of %s: %w", c.Name, c.Interface, err)
}

// qdiscPlace reads "root" or "parent 1:2".
func qdiscPlace(name string) (uint32, error) {
	if name == "root" {
		return tcRoot, nil
	}
	if class, ok := strings.CutPrefix(name, "parent "); ok {
		major, minor, _ := strings.Cut(class, ":")
		a, err1 := strconv.ParseUint(major, 16, 16)
		b, err2 := strconv.ParseUint(minor, 16, 16)
		if err1 == nil && err2 == nil && a > 0 && b > 0 && a < 0xffff {
			return uint32(a<<16 | b), nil
		}
	}
	return 0, fmt.Errorf("%q is not a place of a queueing discipline: root, or parent and a class", name)
}

// look reads what is there, and tries in another namespace whether it can be put
// back exactly.
func (s *qdiscState) look(c *cause.Change) error {
	link, err := netlink.LinkByName(c.Interface)
	if err != nil {
		return errors.New("there is no such interface")
	}
	if !Capable(unix.CAP_NET_ADMIN) {
		return refused(unix.EPERM, "CAP_NET_ADMIN")
	}
	s.Index = uint32(link.Attrs().Index)
	sock, err := rtnetlink()
	if err != nil {
		return err
	}
	defer sock.Close()
	now, all, err := s.current(sock)
	if err != nil {
		return err
	}
	switch {
	case now == nil && s.At != tcRoot, now != nil && now.Handle == 0 && s.At != tcRoot:
		return errors.New("the class has the kernel's default, which cannot be put back exactly: change the root instead")
	case now != nil && now.Handle == 0 || now == nil:
		if len(s.Words) == 0 {
			return fmt.Errorf("it is the kernel's default: %w", ErrAlready)
		}
	case s.At != tcRoot && len(s.Words) == 0:
		return errors.New("the one of a class is not taken away but replaced: name another")
	default:
		s.Old = now
		if err := s.plain(sock, all); err != nil {
			return err
		}
	}
	s.Handle = freeHandle(all)
	a := link.Attrs()
	// The kernel's own thread ends with the namespace that is made for the trial.
	return scratch(a.MTU, a.TxQLen, s.rehearse)
}

// freeHandle is a number that marks the new discipline as slowray's.
func freeHandle(all []tcObject) uint32 {
	for n := uint32(0x5107); ; n++ {
		if !slices.ContainsFunc(all, func(o tcObject) bool { return o.Handle == n<<16 }) {
			return n << 16
		}
	}
}

// current is the discipline at the place, nil when none shows, and all of the
// interface.
func (s *qdiscState) current(sock *netlinkSocket) (*tcObject, []tcObject, error) {
	if _, err := linkAt(int(s.Index)); err != nil {
		return nil, nil, err
	}
	all, err := tcList(sock, unix.RTM_GETQDISC, s.Index, 0)
	if err != nil {
		return nil, nil, refused(err, "CAP_NET_ADMIN")
	}
	for i := range all {
		all[i].Info = 0 // how many refer to it
		if all[i].Parent == s.At {
			return &all[i], all, nil
		}
	}
	return nil, all, nil
}

// plain says no to what has more than itself.
func (s *qdiscState) plain(sock *netlinkSocket, all []tcObject) error {
	no := func(why string) error {
		return fmt.Errorf("%s %s cannot be put back exactly: %s", s.Old.Kind, tcHandle(s.Old.Handle), why)
	}
	if slices.Contains(trees, s.Old.Kind) {
		return no("it has classes")
	}
	if s.Old.Tied {
		return no("it has a table of sizes or shared filters")
	}
	for _, o := range all {
		if o.Parent != tcRoot && o.Parent>>16 == s.Old.Handle>>16 {
			return no("there is " + o.Kind + " below it")
		}
	}
	if filters, err := tcList(sock, unix.RTM_GETTFILTER, s.Index, s.Old.Handle); err == nil && len(filters) > 0 {
		return no("it has filters")
	}
	return nil
}

// rehearse makes both the old and the new one on another device. The old one
// must read the same there.
func (s *qdiscState) rehearse(sock *netlinkSocket) error {
	if s.Old != nil {
		again := *s.Old
		again.Index, again.Parent = 1, tcRoot
		if err := sock.Ask(nl.Message{Kind: unix.RTM_NEWQDISC, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Payload: again.payload()}); err != nil {
			return fmt.Errorf("%s could not be put back (%w): not changed", s.Old.Kind, err)
		}
		list, err := tcList(sock, unix.RTM_GETQDISC, 1, 0)
		if err != nil || len(list) != 1 || !s.reads(list[0], again) {
			return fmt.Errorf("%s would not be the same when it is put back: not changed", s.Old.Kind)
		}
		if err := sock.Ask(nl.Message{Kind: unix.RTM_DELQDISC, Payload: (&tcObject{Index: 1, Parent: tcRoot, Handle: again.Handle}).header()}); err != nil {
			return err
		}
	}
	if len(s.Words) == 0 {
		return nil
	}
	_, err := runTool("tc", s.words("lo", "root")...)
	return err
}

func (s *qdiscState) reads(a, b tcObject) bool {
	a.Info = b.Info
	return a.same(&b)
}

func (s *qdiscState) words(device string, at ...string) []string {
	return append(append([]string{"qdisc", "replace", "dev", device}, append(at, "handle", tcHandle(s.Handle))...), s.Words...)
}

func applyQdisc(c *cause.Change, s *qdiscState) error {
	return qdiscError(c, s.Place.do(func() error {
		link, err := linkAt(int(s.Index))
		if err != nil {
			return err
		}
		if len(s.Words) > 0 {
			_, err := runTool("tc", s.words(link.Attrs().Name, strings.Fields(c.Name)...)...)
			return err
		}
		return s.drop(s.Old.Handle)
	}))
}

// drop takes away what is at the place, and the kernel puts its default there.
func (s *qdiscState) drop(handle uint32) error {
	sock, err := rtnetlink()
	if err != nil {
		return err
	}
	defer sock.Close()
	o := tcObject{Index: s.Index, Parent: s.At, Handle: handle}
	return refused(sock.Ask(nl.Message{Kind: unix.RTM_DELQDISC, Payload: o.header()}), "CAP_NET_ADMIN")
}

func (s *qdiscState) compare(now *tcObject) changeState {
	standard := now == nil || now.Handle == 0
	switch {
	case s.Old == nil && standard, s.Old != nil && now != nil && s.Old.same(now):
		return before
	case len(s.Words) == 0 && standard, len(s.Words) > 0 && now != nil && now.Handle == s.Handle && now.Kind == s.Words[0]:
		return holds
	}
	return foreign
}

func presentQdisc(c *cause.Change, s *qdiscState) (changeState, string, error) {
	h, text := foreign, ""
	err := s.Place.do(func() error {
		sock, err := rtnetlink()
		if err != nil {
			return err
		}
		defer sock.Close()
		now, _, err := s.current(sock)
		if err != nil {
			return err
		}
		h, text = s.compare(now), "the kernel's default"
		if now != nil && now.Handle != 0 {
			text = now.Kind + " " + tcHandle(now.Handle)
		}
		return nil
	})
	return h, text, qdiscError(c, err)
}

func undoQdisc(c *cause.Change, s *qdiscState) error {
	return qdiscError(c, s.Place.do(func() error {
		sock, err := rtnetlink()
		if err != nil {
			return err
		}
		defer sock.Close()
		now, _, err := s.current(sock)
		if err != nil || s.compare(now) == before {
			return err
		}
		if s.Old == nil {
			return s.drop(now.Handle)
		}
		if err := sock.Ask(nl.Message{Kind: unix.RTM_NEWQDISC, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Payload: s.Old.payload()}); err != nil {
			return fmt.Errorf("put back: %w", refused(err, "CAP_NET_ADMIN"))
		}
		if now, _, err = s.current(sock); err == nil && s.compare(now) != before {
			err = errors.New("it was put back and reads differently")
		}
		return err
	}))
}

func qdiscCommands(c *cause.Change, s *qdiscState) (do, undo []shell.Command) {
	prefix := s.Place.prefix()
	at := strings.Fields(c.Name)
	tc := func(words ...string) []shell.Command {
		return []shell.Command{prefix.Then(shell.Args(append([]string{"tc"}, words...)...))}
	}
	drop := tc(append([]string{"qdisc", "del", "dev", c.Interface}, at...)...)
	do = drop
	if len(s.Words) > 0 {
		do = tc(s.words(c.Interface, at...)...)
	}
	if s.Old == nil {
		return do, drop
	}
	old := qdiscState{Handle: s.Old.Handle, Words: strings.Fields(cmpText(c.Was, s.Old.Kind))}
	return do, tc(old.words(c.Interface, at...)...)
}
