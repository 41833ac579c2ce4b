package change

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangePipeSize, kind[pipeState]{
		read: readPipe, apply: applyPipe, present: presentPipe, undo: undoPipe, commands: pipeCommands,
	})
}

type pipeState struct {
	Owner Process `json:"owner"`
	FD    int     `json:"fd"`
	Link  string  `json:"link"` // "pipe:[123]", or the path of one with a name
	Dev   uint64  `json:"dev"`
	Inode uint64  `json:"inode"`
	Old   int     `json:"old"` // bytes
	New   int     `json:"new"` // as the kernel rounds it
}

func readPipe(c *cause.Change) (pipeState, string, error) {
	s := pipeState{FD: c.FD}
	size, err := strconv.Atoi(c.Value)
	if err != nil || size < 1 || size > 1<<30 {
		return s, "", fmt.Errorf("%q is not a size of a pipe", c.Value)
	}
	s.New = pipeRound(size)
	if s.Owner, err = ProcessOf(c.PID); err != nil {
		return s, "", err
	}
	if s.Link, err = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.PID, c.FD)); err != nil {
		return s, "", pipeError(c, fmt.Errorf("there is no such descriptor, or it may not be looked at (needs CAP_SYS_PTRACE)"))
	}
	fd, err := borrow(s.Owner, s.FD)
	if err != nil {
		return s, "", pipeError(c, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return s, "", pipeError(c, errors.New("it is not a pipe"))
	}
	s.Dev, s.Inode = st.Dev, st.Ino
	if s.Old, err = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err != nil {
		return s, "", pipeError(c, err)
	}
	if most := pipeMax(); s.New > most && !Capable(unix.CAP_SYS_RESOURCE) {
		return s, "", pipeError(c, fmt.Errorf("fs.pipe-max-size allows no more than %d bytes without CAP_SYS_RESOURCE", most))
	}
	if s.New == s.Old {
		err = pipeError(c, fmt.Errorf("%d bytes: %w", s.Old, ErrAlready))
	}
	return s, fmt.Sprint(s.Old), err
}

// pipeRound is the size that the kernel makes of another: pages, a power of two
// (round_pipe_size, fs/pipe.c).
func pipeRound(size int) int {
	page := os.Getpagesize()
	if size <= page {
		return page
	}
	return 1 << bits.Len(uint(size-1))
}

func pipeMax() int {
	b, _ := os.ReadFile("/proc/sys/fs/pipe-max-size")
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 1 << 20
	}
	return n
}

func pipeError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("pipe at descriptor %d of process %d: %w", c.FD, c.PID, err)
}

// open gives a descriptor of the very pipe: its owner's, or, when that has
// closed it or ended, that of whoever has the other end.
func (s *pipeState) open() (int, error) {
	fd, err := borrow(s.Owner, s.FD)
	if err == nil && s.is(fd) {
		return fd, nil
	}
	if err == nil {
		unix.Close(fd)
	} else if !errors.Is(err, ErrGone) {
		return -1, err
	}
	for _, pid := range allPIDs() {
		for n := range linksOf(pid, func(l string) bool { return l == s.Link }) {
			owner, err := ProcessOf(pid)
			if err != nil {
				break
			}
			if fd, err := borrow(owner, n); err == nil {
				if s.is(fd) {
					return fd, nil
				}
				unix.Close(fd)
			}
		}
	}
	return -1, ErrGone
}

func (s *pipeState) is(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO && st.Dev == s.Dev && st.Ino == s.Inode
}

func (s *pipeState) size() (int, error) {
	fd, err := s.open()
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
}

// pipeWait is how long it is waited for a reader to make room.
const pipeWait = time.Second

func (s *pipeState) resize(size int) error {
	fd, err := s.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for end := time.Now().Add(pipeWait); ; time.Sleep(10 * time.Millisecond) {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size)
		if !errors.Is(err, unix.EBUSY) {
			return refused(err, "CAP_SYS_RESOURCE, or fewer pipes: fs.pipe-user-pages-soft")
		}
		if time.Now().After(end) {
			return fmt.Errorf("it holds more than %d bytes: undo again when its reader has caught up", size)
		}
	}
}

func applyPipe(c *cause.Change, s *pipeState) error { return pipeError(c, s.resize(s.New)) }

func undoPipe(c *cause.Change, s *pipeState) error { return pipeError(c, s.resize(s.Old)) }

func presentPipe(c *cause.Change, s *pipeState) (changeState, string, error) {
	now, err := s.size()
	switch {
	case err != nil:
		return foreign, "", pipeError(c, err)
	case now == s.New:
		return holds, "", nil
	case now == s.Old:
		return before, "", nil
	}
	return foreign, fmt.Sprint(now), nil
}

func pipeCommands(c *cause.Change, s *pipeState) (do, undo []shell.Command) {
	call := func(n int) []shell.Command {
		return []shell.Command{shell.Line("# pidfd_getfd(pid %s, fd %s), fcntl(fd, F_SETPIPE_SZ, %s)", s.Owner.PID, s.FD, n)}
	}
	return call(s.New), call(s.Old)
}
