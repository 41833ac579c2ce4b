package change

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeSocketOption, kind[optionState]{
		read: readOption, apply: applyOption, present: presentOption, undo: undoOption, commands: optionCommands,
	})
}

// An option of setsockopt(2) that can be set at any time and set back.
type option struct{ level, number int }

var options = map[string]option{
	"TCP_NODELAY":       {unix.IPPROTO_TCP, unix.TCP_NODELAY},
	"TCP_CORK":          {unix.IPPROTO_TCP, unix.TCP_CORK},
	"TCP_USER_TIMEOUT":  {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
	"TCP_KEEPIDLE":      {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
	"TCP_KEEPINTVL":     {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	"TCP_KEEPCNT":       {unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
	"TCP_NOTSENT_LOWAT": {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT},
	"SO_KEEPALIVE":      {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
	"SO_RCVBUF":         {unix.SOL_SOCKET, unix.SO_RCVBUF},
	"SO_SNDBUF":         {unix.SOL_SOCKET, unix.SO_SNDBUF},
}

// buffers says how a buffer's size is set beyond rmem_max and wmem_max, and which
// bit of SO_BUF_LOCK tells that it was set and does not grow by itself.
var buffers = map[string]struct{ force, lock int }{
	"SO_RCVBUF": {unix.SO_RCVBUFFORCE, 2}, // SOCK_RCVBUF_LOCK
	"SO_SNDBUF": {unix.SO_SNDBUFFORCE, 1}, // SOCK_SNDBUF_LOCK
}

type optionState struct {
	Place   place       `json:"place"`
	Name    string      `json:"name"`
	Side    string      `json:"side,omitempty"`
	Addr    string      `json:"addr,omitempty"`
	Port    int         `json:"port"`
	PID     int         `json:"pid"`
	Value   int         `json:"value"` // as it is set; a buffer reads as twice that
	Sockets []oldOption `json:"sockets"`
}

type oldOption struct {
	socket
	Listens bool `json:"listens,omitempty"`
	optionValue
}

// optionValue is what a socket has.
type optionValue struct {
	Value int `json:"value"`
	Lock  int `json:"lock,omitempty"` // SO_BUF_LOCK
}

func readOption(c *cause.Change) (optionState, string, error) {
	s := optionState{Name: c.Name, Side: c.Side, Addr: c.Addr, Port: c.Port, PID: c.PID}
	if _, ok := options[c.Name]; !ok {
		return s, "", fmt.Errorf("%q is not a socket option that can be set and set back", c.Name)
	}
	buffer, isBuffer := buffers[c.Name]
	var err error
	if s.Value, err = strconv.Atoi(c.Value); err != nil || s.Value < 0 || isBuffer && (s.Value < 4096 || s.Value > 1<<30) {
		return s, "", fmt.Errorf("%s: %q is not a value", c.Name, c.Value)
	}
	if s.Place, err = placeOf(c); err != nil {
		return s, "", fmt.Errorf("%s: %w", c.Name, err)
	}
	if s.Sockets, err = s.find(); err != nil {
		return s, "", fmt.Errorf("%s: %w", c.Name, err)
	}
	if len(s.Sockets) == 0 {
		return s, "", fmt.Errorf("%s: process %d has no such sockets", c.Name, c.PID)
	}
	if isBuffer && !Capable(unix.CAP_NET_ADMIN) {
		return s, "", fmt.Errorf("%s: %w", c.Name, refused(unix.EPERM, "CAP_NET_ADMIN"))
	}
	already := true
	for i := range s.Sockets {
		o := &s.Sockets[i]
		if isBuffer && s.Side != "" && o.Lock < 0 {
			return s, "", fmt.Errorf("%s: this kernel (before 5.14) cannot let a buffer grow by itself again", c.Name)
		}
		already = already && s.ours(o.optionValue, buffer.lock)
	}
	if already {
		return s, s.words(s.Sockets), fmt.Errorf("%s of all sockets is %s: %w", c.Name, c.Value, ErrAlready)
	}
	return s, s.words(s.Sockets), nil
}

// live is the sockets of the endpoint as the kernel lists them now: inode →
// whether it listens. One that is not among them is closed.
func (s *optionState) live() (map[uint64]bool, error) {
	ns, err := s.Place.open()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	out := map[uint64]bool{}
	if s.Side == "" {
		return out, s.datagrams(ns, out)
	}
	return out, ns.Sockets(func(k *host.SocketSample) {
		if k.Inode != 0 && s.wanted(k) {
			out[k.Inode] = k.State == "LISTEN"
		}
	})
}

// find looks up the sockets as they are now, and what they have.
func (s *optionState) find() ([]oldOption, error) {
	live, err := s.live()
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	for inode := range live {
		inodes[inode] = true
	}
	family := relatives(s.PID)
	var out []oldOption
	for inode, h := range holdersOf(inodes, family) {
		if !slices.Contains(family, h.Owner.PID) {
			continue
		}
		o := oldOption{socket: h, Listens: live[inode]}
		err := o.identify()
		if err == nil {
			o.optionValue, err = s.get(&o.socket)
		}
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b oldOption) int { return cmp.Compare(a.Inode, b.Inode) })
	return out, nil
}

// each calls f with each socket that is still open; ErrGone when none is. The
// closed ones are known by the kernel's list: to look for each among all
// processes would take too long where connections come and go.
func (s *optionState) each(f func(*oldOption) error) error {
	live, err := s.live()
	if err != nil {
		return err
	}
	reached := 0
	for i := range s.Sockets {
		o := &s.Sockets[i]
		if _, ok := live[o.Inode]; !ok {
			continue
		}
		err := f(o)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		reached++
	}
	if reached == 0 {
		return ErrGone
	}
	return nil
}

// wanted says whether a socket is one of the endpoint. A listening one gives
// what it has to the connections that are accepted from it (sk_clone_lock).
func (s *optionState) wanted(k *host.SocketSample) bool {
	addr, err := netip.ParseAddr(s.Addr)
	anyAddr := err != nil || addr.IsUnspecified()
	if s.Side == "called" {
		return k.State != "LISTEN" && int(k.DstPort) == s.Port && (anyAddr || k.Dst == addr.Unmap())
	}
	return int(k.SrcPort) == s.Port && (anyAddr || k.Src == addr.Unmap() || k.State == "LISTEN" && k.Src.IsUnspecified())
}

func (s *optionState) datagrams(ns *host.NetNS, into map[uint64]bool) error {
	list, err := ns.UDPSockets()
	addr, bad := netip.ParseAddr(s.Addr)
	for _, u := range list {
		if int(u.Local.Port()) == s.Port && (bad != nil || u.Local.Addr().Unmap() == addr.Unmap()) {
			into[u.Inode] = false
		}
	}
	return err
}

func (s *optionState) get(k *socket) (v optionValue, err error) {
	o := options[s.Name]
	err = k.do(func(fd int) (err error) {
		if v.Value, err = unix.GetsockoptInt(fd, o.level, o.number); err != nil {
			return refused(err, "CAP_SYS_PTRACE")
		}
		if _, ok := buffers[s.Name]; ok {
			if v.Lock, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK); err != nil {
				v.Lock, err = -1, nil
			}
		}
		return err
	})
	return v, err
}

// set sets the option, and of a buffer whether it stays as it is.
func (s *optionState) set(k *socket, v optionValue) error {
	o := options[s.Name]
	buffer, isBuffer := buffers[s.Name]
	return k.do(func(fd int) error {
		if !isBuffer {
			return refused(unix.SetsockoptInt(fd, o.level, o.number, v.Value), "CAP_SYS_PTRACE")
		}
		// The kernel keeps twice what is set, for its own use (socket(7)).
		if err := unix.SetsockoptInt(fd, o.level, buffer.force, v.Value/2); err != nil {
			return refused(err, "CAP_NET_ADMIN")
		}
		if v.Lock >= 0 {
			return refused(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK, v.Lock), "Linux 5.14")
		}
		return nil
	})
}

// ours says whether v is what Apply sets; old whether it is what was before. A
// buffer that grows by itself is as before whatever its size.
func (s *optionState) ours(v optionValue, lock int) bool {
	if lock == 0 {
		return v.Value == s.Value
	}
	return v.Value == 2*s.Value && (v.Lock < 0 || v.Lock&lock != 0)
}

func (s *optionState) old(v, old optionValue, lock int) bool {
	if lock == 0 {
		return v.Value == old.Value
	}
	return v.Lock == old.Lock && (v.Value&^1 == old.Value&^1 || v.Lock >= 0 && v.Lock&lock == 0)
}

func applyOption(_ *cause.Change, s *optionState) error {
	buffer, isBuffer := buffers[s.Name]
	return s.each(func(o *oldOption) error {
		v := optionValue{s.Value, 0}
		if isBuffer {
			v = optionValue{2 * s.Value, o.Lock}
			if o.Lock >= 0 {
				v.Lock = o.Lock | buffer.lock
			}
		}
		return s.set(&o.socket, v)
	})
}

func presentOption(_ *cause.Change, s *optionState) (changeState, string, error) {
	lock := buffers[s.Name].lock
	var t tally
	var now []oldOption
	err := s.each(func(o *oldOption) error {
		v, err := s.get(&o.socket)
		if err != nil {
			return err
		}
		was := s.old(v, o.optionValue, lock)
		t.add(!was && s.ours(v, lock), was)
		now = append(now, oldOption{optionValue: v})
		return nil
	})
	if err != nil {
		return foreign, "", err
	}
	h, err := t.state()
	return h, s.words(now), err
}

// words is the values in list.
func (s *optionState) words(list []oldOption) string {
	values := make([]int, len(list))
	for i, o := range list {
		values[i] = o.Value
	}
	return valuesOf(values)
}

func undoOption(_ *cause.Change, s *optionState) error {
	lock := buffers[s.Name].lock
	err := s.each(func(o *oldOption) error {
		v, err := s.get(&o.socket)
		if err == nil && s.ours(v, lock) && !s.old(v, o.optionValue, lock) {
			err = s.set(&o.socket, o.optionValue)
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.undoAccepted()
}

// undoAccepted gives connections that were accepted meanwhile, and have got the
// value from the listening socket, what they would have got without the change.
// Where the connections before had something else than their listening socket,
// the program sets the option by itself, and they are left alone.
func (s *optionState) undoAccepted() error {
	lock := buffers[s.Name].lock
	known := map[uint64]bool{}
	var listener *oldOption
	for i := range s.Sockets {
		o := &s.Sockets[i]
		known[o.Inode] = true
		if o.Listens {
			listener = o
		}
	}
	if listener == nil {
		return nil
	}
	for i := range s.Sockets {
		if o := &s.Sockets[i]; lock == 0 && o.Value != listener.Value {
			return nil
		}
	}
	list, err := s.find()
	if err != nil {
		return err
	}
	for i := range list {
		o := &list[i]
		if known[o.Inode] || o.Listens || !s.ours(o.optionValue, lock) {
			continue
		}
		if err := s.set(&o.socket, listener.optionValue); err != nil && !errors.Is(err, ErrGone) {
			return err
		}
	}
	return nil
}

func optionCommands(c *cause.Change, s *optionState) (do, undo []shell.Command) {
	const most = 2
	for i, o := range s.Sockets {
		if i == most {
			more := shell.Line("# … and so on for %s more", shell.Text(plural(len(s.Sockets)-most, "socket")))
			return append(do, more), append(undo, more)
		}
		call := func(v int) shell.Command {
			return shell.Line("# pidfd_getfd(pid %s, fd %s), setsockopt(fd, %s, %s)", o.Owner.PID, o.FD, s.Name, v)
		}
		old := o.Value
		if _, ok := buffers[s.Name]; ok {
			old /= 2
		}
		do, undo = append(do, call(s.Value)), append(undo, call(old))
	}
	return do, undo
}
