package wait

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/printable"
)

// objectKind is what a descriptor stands for.
type objectKind int

const (
	noObject     objectKind = iota // the descriptor cannot be read, or is closed by now
	pipeObject                     // a pipe without a name
	fifoObject                     // a pipe with a name (fifo(7))
	socketObject                   //
	fileObject                     // regular file, directory, block device
	deviceObject                   // character device
	anonObject                     // anon_inode: eventfd, epoll, pidfd…
)

// object is what a descriptor of a thread stands for.
type object struct {
	kind  objectKind
	fd    int
	link  string // target of /proc/PID/fd/N, as it is
	inode uint64 // of pipes, FIFOs, sockets and files
	dev   uint64 // of FIFOs and files: major<<32 | minor
}

// String is "fd 5 → pipe:[1234]".
func (o object) String() string {
	if o.kind == noObject {
		return fmt.Sprintf("fd %d", o.fd)
	}
	return fmt.Sprintf("fd %d → %s", o.fd, printable.Name(o.link, 512))
}

// object resolves a descriptor of a thread. Metadata is taken as the kernel has
// it: asking the server of a dead network file system would hang us too.
func (l *look) object(t *thread, fd int) object {
	o := object{fd: fd}
	if fd < 0 || l.budget.File() != nil {
		return o
	}
	path := l.path(t, fmt.Sprintf("fd/%d", fd))
	link, err := os.Readlink(path)
	if err != nil {
		l.permission(fmt.Sprintf("open files of process %d", t.p.pid), err, "CAP_SYS_PTRACE")
		return o
	}
	o.link = link
	var ok bool
	switch {
	case strings.HasPrefix(link, "pipe:["):
		if o.inode, ok = bracketed(link, "pipe:["); ok {
			o.kind = pipeObject
		}
	case strings.HasPrefix(link, "socket:["):
		if o.inode, ok = bracketed(link, "socket:["); ok {
			o.kind = socketObject
		}
	case strings.HasPrefix(link, "anon_inode:"):
		o.kind = anonObject
	case strings.HasPrefix(link, "/"):
		o.kind = fileObject
		var st unix.Statx_t
		if unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st) != nil {
			break
		}
		o.inode, o.dev = st.Ino, uint64(st.Dev_major)<<32|uint64(st.Dev_minor)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFIFO:
			o.kind = fifoObject
		case unix.S_IFCHR:
			o.kind = deviceObject
		}
	}
	return o
}

// maxFDInfo bounds what is read of such a file, bytes: that of an epoll instance has
// a line for each descriptor it watches.
const maxFDInfo = 64 << 10

// fdInfo reads /proc/PID/fdinfo/N (proc_pid_fdinfo(5)); nil when it cannot be
// read.
func (l *look) fdInfo(pid, fd int) []byte {
	if l.budget.File() != nil {
		return nil
	}
	b, err := budget.Head(fmt.Sprintf("%s/%d/fdinfo/%d", l.fs.Proc, pid, fd), maxFDInfo)
	if err != nil {
		l.permission(fmt.Sprintf("open files of process %d", pid), err, "CAP_SYS_PTRACE")
		return nil
	}
	return b
}

// accessOf takes the way a file was opened from an fdinfo file: flags, octal.
func accessOf(info []byte) (read, write bool) {
	text := keyed(info, "flags:")
	flags := uint64(0)
	for _, c := range text {
		if c < '0' || c > '7' {
			return false, false
		}
		flags = flags<<3 | uint64(c-'0')
	}
	if len(text) == 0 {
		return false, false
	}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		return true, false
	case unix.O_WRONLY:
		return false, true
	case unix.O_RDWR:
		return true, true
	}
	return false, false
}

// isTerminal says whether a character device is a terminal.
func (o object) isTerminal() bool {
	return o.kind == deviceObject && (strings.HasPrefix(o.link, "/dev/pts/") || strings.HasPrefix(o.link, "/dev/tty") || o.link == "/dev/console")
}

// protocol is the protocol of a socket that sock_diag does not list here, as
// "NETLINK"; empty when it is not known. Since 3.7 sockets have it as an
// extended attribute (sockfs_xattr_handlers, net/socket.c).
func (l *look) protocol(t *thread, fd int) string {
	var b [32]byte
	n, err := unix.Getxattr(l.path(t, fmt.Sprintf("fd/%d", fd)), "system.sockprotoname", b[:])
	if err != nil || n <= 0 {
		return ""
	}
	return printable.Name(strings.TrimRight(string(b[:min(n, len(b))]), "\x00"), 32)
}
