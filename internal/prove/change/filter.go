package change

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeFilter, kind[filterState]{
		read: readFilter, apply: applyFilter, present: presentFilter, undo: undoFilter, commands: filterCommands,
		whole: func(s *filterState) bool { return s.TC != nil || s.XDP != nil && s.Program != nil },
	})
}

// filterState is a filter of traffic control, or the XDP program of a device.
type filterState struct {
	Place   place     `json:"place"`
	TC      *tcFilter `json:"tc,omitempty"`
	XDP     *xdpOld   `json:"xdp,omitempty"`
	Program *pinned   `json:"program,omitempty"` // of BPF: what has to be kept
}

func readFilter(c *cause.Change) (filterState, string, error) {
	var s filterState
	if c.Rule == nil {
		return s, "", errors.New("no filter is named")
	}
	var err error
	if s.Place, err = placeOf(c); err != nil {
		return s, "", filterError(c, err)
	}
	if !Capable(unix.CAP_NET_ADMIN) {
		return s, "", filterError(c, refused(unix.EPERM, "CAP_NET_ADMIN"))
	}
	was := ""
	err = s.Place.do(func() (err error) {
		switch c.Rule.Tool {
		case "tc":
			s.TC, s.Program, err = readTCFilter(c)
			if err == nil {
				was = fmt.Sprintf("filter %s, preference %d", s.TC.Object.Kind, s.TC.Object.Info>>16)
			}
		case "xdp":
			s.XDP, s.Program, err = readXDP(c)
			if err == nil {
				was = fmt.Sprintf("program %d", s.Program.ID)
			}
		default:
			err = fmt.Errorf("filters of %q cannot be changed by this version", c.Rule.Tool)
		}
		return err
	})
	return s, was, filterError(c, err)
}

func filterError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	what := "filter"
	if c.Rule != nil && c.Rule.Tool == "xdp" {
		what = "XDP program"
	}
	return fmt.Errorf("%s of %s: %w", what, c.Interface, err)
}

// applyFilter keeps the program first: the kernel forgets one that nothing holds.
func applyFilter(c *cause.Change, s *filterState) error {
	return filterError(c, s.Place.do(func() error {
		if s.Program != nil {
			if err := s.Program.pin(); err != nil {
				return err
			}
		}
		if s.XDP != nil {
			return s.XDP.detach(s.Program)
		}
		return s.TC.remove()
	}))
}

func presentFilter(c *cause.Change, s *filterState) (changeState, string, error) {
	h, text := foreign, ""
	err := s.Place.do(func() (err error) {
		if s.XDP != nil {
			h, text, err = s.XDP.present(s.Program)
		} else {
			h, text, err = s.TC.present()
		}
		return err
	})
	return h, text, filterError(c, err)
}

func undoFilter(c *cause.Change, s *filterState) error {
	err := s.Place.do(func() error {
		if s.XDP != nil {
			return s.XDP.attach(s.Program)
		}
		return s.TC.restore(s.Program)
	})
	if (err == nil || errors.Is(err, ErrGone)) && s.Program != nil {
		s.Program.unpin()
	}
	return filterError(c, err)
}

func filterCommands(c *cause.Change, s *filterState) (do, undo []shell.Command) {
	prefix := s.Place.prefix()
	if s.Program != nil {
		do = append(do, shell.Line("mkdir -p -m 700 %s", shell.Path(s.Program.dir())))
		do = append(do, shell.Line("bpftool prog pin id %s %s", s.Program.ID, shell.Path(s.Program.Path)))
	}
	switch {
	case s.XDP != nil:
		do = append(do, prefix.Then(shell.Line("ip link set dev %s xdp off", shell.Word(c.Interface))))
		undo = append(undo, prefix.Then(shell.Line("ip link set dev %s %s pinned %s", shell.Word(c.Interface), s.XDP.word(), shell.Path(s.Program.Path))))
	case s.TC != nil:
		at := shell.Line("dev %s %s", shell.Word(c.Interface), s.TC.way()).Then(s.TC.words())
		do = append(do, prefix.Then(shell.Line("tc filter del")).Then(at))
		undo = append(undo, prefix.Then(shell.Line("tc filter add")).Then(at))
		if s.Program != nil {
			undo[0] = undo[0].Then(shell.Line("object-pinned %s direct-action", shell.Path(s.Program.Path)))
		}
	}
	if s.Program != nil {
		undo = append(undo, shell.Line("rm %s", shell.Path(s.Program.Path)))
	}
	return do, undo
}
