package change

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeBacklog, kind[backlogState]{
		read: readBacklog, apply: applyBacklog, present: presentBacklog, undo: undoBacklog, commands: backlogCommands,
	})
}

// backlogState is the listening sockets of an address: one, or with
// SO_REUSEPORT often one for each worker.
type backlogState struct {
	Place     place        `json:"place"`
	Want      uint32       `json:"want"` // what the kernel makes of the value
	SoMaxConn uint32       `json:"somaxconn"`
	Sockets   []oldBacklog `json:"sockets"`
}

type oldBacklog struct {
	socket
	Old uint32 `json:"old"`
}

const somaxconn = "net/core/somaxconn"

func readBacklog(c *cause.Change) (backlogState, string, error) {
	var s backlogState
	value, err := strconv.ParseUint(c.Value, 10, 31)
	if err != nil {
		return s, "", fmt.Errorf("backlog: %q is not a number of connections", c.Value)
	}
	if s.Place, err = placeOf(c); err != nil {
		return s, "", fmt.Errorf("backlog: %w", err)
	}
	listeners, err := s.listeners()
	if err != nil {
		return s, "", fmt.Errorf("backlog: %w", err)
	}
	listeners = chosen(listeners, c)
	if len(listeners) == 0 {
		return s, "", fmt.Errorf("backlog: nothing listens at %s", listenName(c))
	}
	if s.SoMaxConn, err = s.maximum(); err != nil {
		return s, "", fmt.Errorf("backlog: %w", err)
	}
	s.Want = min(uint32(value), s.SoMaxConn)
	if err := s.find(listeners, c); err != nil {
		return s, "", err
	}
	was := s.words()
	for _, l := range s.Sockets {
		if l.Old != s.Want {
			return s, was, nil
		}
	}
	if s.Want < uint32(value) {
		return s, was, fmt.Errorf("backlog of %s is %d, and net.core.somaxconn allows no more: %w", listenName(c), s.Want, ErrFirst)
	}
	return s, was, fmt.Errorf("backlog of %s is %d: %w", listenName(c), s.Want, ErrAlready)
}

func (s *backlogState) listeners() ([]host.ListenerSample, error) {
	ns, err := s.Place.open()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return ns.Listeners()
}

// maximum is net.core.somaxconn of the namespace; listen(2) takes no more.
func (s *backlogState) maximum() (n uint32, err error) {
	err = s.Place.do(func() error {
		text, err := readSysctlFile(somaxconn)
		if err != nil {
			return err
		}
		v, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		n = uint32(v)
		return err
	})
	return n, err
}

// find looks up who has the sockets. One of them must be c's process, or what
// belongs to it; a port in another's hands is not touched.
func (s *backlogState) find(listeners []host.ListenerSample, c *cause.Change) error {
	inodes := map[uint64]bool{}
	for _, l := range listeners {
		inodes[l.Inode] = true
	}
	family := []int{}
	if c.PID > 0 {
		family = relatives(c.PID)
	}
	holders, own := holdersOf(inodes, family), c.PID <= 0
	for _, l := range listeners {
		h, ok := holders[l.Inode]
		if !ok {
			return fmt.Errorf("backlog: no process is seen to have the socket that listens at %s (needs CAP_SYS_PTRACE, and the host's processes)", listenName(c))
		}
		if err := h.identify(); err != nil {
			return fmt.Errorf("backlog: %w", err)
		}
		for _, pid := range family {
			own = own || pid == h.Owner.PID
		}
		s.Sockets = append(s.Sockets, oldBacklog{h, l.Limit})
	}
	if !own {
		return fmt.Errorf("backlog: %s belongs to process %d, not to %d", listenName(c), s.Sockets[0].Owner.PID, c.PID)
	}
	return nil
}

// chosen is those of the address: the one that was named, else, as a client
// would reach it, the one for all addresses.
func chosen(all []host.ListenerSample, c *cause.Change) []host.ListenerSample {
	var exact, wild []host.ListenerSample
	want, err := netip.ParseAddr(strings.Trim(c.Addr, "[]"))
	for _, l := range all {
		switch {
		case c.Path != "":
			if l.Proto == "unix" && l.Path == c.Path {
				exact = append(exact, l)
			}
		case l.Proto == "unix" || int(l.Port) != c.Port:
		case err == nil && l.Addr == want.Unmap():
			exact = append(exact, l)
		case l.Addr.IsUnspecified(), err != nil: // with no address: any of the port
			wild = append(wild, l)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return wild
}

func listenName(c *cause.Change) string {
	if c.Path != "" {
		return c.Path
	}
	if c.Addr == "" {
		return fmt.Sprintf("port %d", c.Port)
	}
	return fmt.Sprintf("%s port %d", c.Addr, c.Port)
}

// words is the old values.
func (s *backlogState) words() string {
	values := make([]int, len(s.Sockets))
	for i := range s.Sockets {
		values[i] = int(s.Sockets[i].Old)
	}
	return valuesOf(values)
}

// valuesOf says which values sockets have, the least one first: "128", of several
// sockets "128 on 3 sockets, 511 on 1 socket". The kernel lists sockets in any order.
func valuesOf(values []int) string {
	if len(values) == 1 {
		return strconv.Itoa(values[0])
	}
	slices.Sort(values)
	var list []string
	for len(values) > 0 {
		n := 1
		for n < len(values) && values[n] == values[0] {
			n++
		}
		list = append(list, fmt.Sprintf("%d on %s", values[0], plural(n, "socket")))
		values = values[n:]
	}
	return strings.Join(list, ", ")
}

func applyBacklog(c *cause.Change, s *backlogState) error {
	return s.each(c, func(l *oldBacklog, _ uint32) uint32 { return s.Want })
}

// undoBacklog leaves a socket alone that its program has given another backlog.
func undoBacklog(c *cause.Change, s *backlogState) error {
	return s.each(c, func(l *oldBacklog, now uint32) uint32 {
		if now == s.Want {
			return l.Old
		}
		return now
	})
}

// each listens anew on each socket that is left: of one that listens already
// that only sets its backlog (inet_csk_listen_start, unix_listen). A lower
// somaxconn gives less than was asked for, so it is read again.
func (s *backlogState) each(c *cause.Change, value func(l *oldBacklog, now uint32) uint32) error {
	limits, err := s.limits()
	if err != nil {
		return err
	}
	want := map[uint64]uint32{}
	for i := range s.Sockets {
		l := &s.Sockets[i]
		now, listens := limits[l.Inode]
		if !listens {
			continue
		}
		n := value(l, now)
		err := l.do(func(fd int) error {
			if n == now {
				return nil
			}
			return refused(unix.Listen(fd, int(n)), "CAP_SYS_PTRACE")
		})
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return fmt.Errorf("backlog of %s: %w", listenName(c), err)
		}
		want[l.Inode] = n
	}
	if len(want) == 0 {
		return ErrGone
	}
	if limits, err = s.limits(); err != nil {
		return err
	}
	for inode, n := range want {
		if got, ok := limits[inode]; ok && got != n {
			return fmt.Errorf("backlog of %s: the kernel made %d of %d (net.core.somaxconn)", listenName(c), got, n)
		}
	}
	return nil
}

func (s *backlogState) limits() (map[uint64]uint32, error) {
	listeners, err := s.listeners()
	out := map[uint64]uint32{}
	for _, l := range listeners {
		out[l.Inode] = l.Limit
	}
	return out, err
}

func presentBacklog(c *cause.Change, s *backlogState) (changeState, string, error) {
	limits, err := s.limits()
	if err != nil {
		return foreign, "", err
	}
	var t tally
	now := *s
	now.Sockets = nil
	for i := range s.Sockets {
		l := s.Sockets[i]
		limit, ok := limits[l.Inode]
		if !ok || errors.Is(l.do(func(int) error { return nil }), ErrGone) {
			continue
		}
		t.add(limit == s.Want, limit == l.Old)
		l.Old = limit
		now.Sockets = append(now.Sockets, l)
	}
	h, err := t.state()
	return h, now.words(), err
}

func backlogCommands(c *cause.Change, s *backlogState) (do, undo []shell.Command) {
	for _, l := range s.Sockets {
		call := func(n uint32) shell.Command {
			return shell.Line("# pidfd_getfd(pid %s, fd %s), listen(fd, %s)", l.Owner.PID, l.FD, n)
		}
		do, undo = append(do, call(s.Want)), append(undo, call(l.Old))
	}
	if want, err := strconv.ParseUint(c.Value, 10, 31); err == nil && s.Want < uint32(want) && len(do) > 0 {
		do[0] = do[0].Note("not %s: net.core.somaxconn is %s", want, s.SoMaxConn)
	}
	return do, undo
}
