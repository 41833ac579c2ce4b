package change

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// socket is one socket of other processes: how to find it again, and how to
// know that it is the same.
type socket struct {
	Owner  Process `json:"owner"` // one that had it
	FD     int     `json:"fd"`    // its descriptor there
	Inode  uint64  `json:"inode"`
	Cookie uint64  `json:"cookie,omitempty"` // never given twice (SO_COOKIE, Linux 4.6 for all sockets)
}

// holdersOf finds descriptors of sockets by their inodes, first in the
// processes of first, then in all that there are.
func holdersOf(inodes map[uint64]bool, first []int) map[uint64]socket {
	out := map[uint64]socket{}
	seen := map[int]bool{}
	for _, pid := range append(first[:len(first):len(first)], allPIDs()...) {
		if len(out) == len(inodes) {
			break
		}
		if seen[pid] {
			continue
		}
		seen[pid] = true
		var owner Process
		for fd, link := range linksOf(pid, func(l string) bool { return strings.HasPrefix(l, "socket:[") }) {
			inode := inodeIn(link, "socket")
			if _, found := out[inode]; found || !inodes[inode] {
				continue
			}
			if owner.PID == 0 {
				var err error
				if owner, err = ProcessOf(pid); err != nil {
					break
				}
			}
			out[inode] = socket{Owner: owner, FD: fd, Inode: inode}
		}
	}
	return out
}

// identify borrows the socket and notes its cookie.
func (s *socket) identify() error {
	fd, err := s.borrow()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.Cookie, _ = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	return nil
}

// borrow gives a descriptor of the very socket, ErrGone when nobody has it any
// more.
func (s *socket) borrow() (int, error) {
	fd, err := borrow(s.Owner, s.FD)
	if err == nil && s.is(fd) {
		return fd, nil
	}
	if err == nil {
		unix.Close(fd)
	} else if !errors.Is(err, ErrGone) {
		return -1, err
	}
	// The owner closed it or ended; another worker may still have it.
	other, ok := holdersOf(map[uint64]bool{s.Inode: true}, nil)[s.Inode]
	if !ok {
		return -1, ErrGone
	}
	if fd, err = borrow(other.Owner, other.FD); err != nil {
		return -1, err
	}
	if !s.is(fd) {
		unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}

func (s *socket) is(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Ino != s.Inode {
		return false
	}
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	return err != nil || s.Cookie == 0 || cookie == s.Cookie
}

// do calls f with a descriptor of the socket.
func (s *socket) do(f func(fd int) error) error {
	fd, err := s.borrow()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
