package host

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A raw reads many small procfs files without allocating: names are byte
// slices that end in NUL, contents land in one reused buffer.
type raw struct {
	buf  []byte // file contents
	dir  []byte // directory entries
	path []byte // name under construction, NUL at the end
	ids  []int  // numbers found in a directory
}

var raws = sync.Pool{New: func() any {
	return &raw{buf: make([]byte, 16<<10), dir: make([]byte, 32<<10), path: make([]byte, 0, 256)}
}}

func getRaw() *raw  { return raws.Get().(*raw) }
func (r *raw) put() { raws.Put(r) }

// open opens name (NUL at its end) relative to the directory at, which may be
// unix.AT_FDCWD.
func (r *raw) open(at int, name []byte, flags int) (int, error) {
	for {
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])),
			uintptr(flags|unix.O_CLOEXEC), 0, 0, 0)
		switch e {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, e
		}
	}
}

// read returns the contents of a small file: everything that one read gives,
// which for the single-record files of procfs is the whole file. The result is
// valid until the next call.
func (r *raw) read(at int, name []byte) ([]byte, error) {
	fd, err := r.open(at, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	for {
		n, _, e := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&r.buf[0])), uintptr(len(r.buf)))
		if e == unix.EINTR {
			continue
		}
		closeFD(fd)
		if e != 0 {
			return nil, e
		}
		return r.buf[:n], nil
	}
}

// closeFD closes a descriptor that was only read: no error of close matters.
func closeFD(fd int) { _, _, _ = unix.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// readlink returns the target of a symbolic link, valid until the next call.
func (r *raw) readlink(at int, name []byte) ([]byte, error) {
	n, _, e := unix.Syscall6(unix.SYS_READLINKAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])),
		uintptr(unsafe.Pointer(&r.buf[0])), uintptr(len(r.buf)), 0, 0)
	if e != 0 {
		return nil, e
	}
	return r.buf[:n], nil
}

// cstring ends s in NUL, valid until the next call of cstring or num.
func (r *raw) cstring(s string) []byte {
	r.path = append(append(r.path[:0], s...), 0)
	return r.path
}

// num builds the NUL-terminated name prefix + n + suffix.
func (r *raw) num(prefix string, n int, suffix string) []byte {
	r.path = append(r.path[:0], prefix...)
	r.path = appendInt(r.path, n)
	r.path = append(r.path, suffix...)
	r.path = append(r.path, 0)
	return r.path
}

func appendInt(b []byte, n int) []byte {
	var d [20]byte
	i := len(d)
	for u := uint(max(n, 0)); ; u /= 10 {
		i--
		d[i] = byte('0' + u%10)
		if u < 10 {
			return append(b, d[i:]...)
		}
	}
}

// entries calls visit with the name of each entry of the open directory fd but
// "." and "..". The name has a NUL behind it: name[:len(name)+1] is a C string.
func (r *raw) entries(fd int, visit func(name []byte)) error {
	for {
		n, _, e := unix.Syscall(unix.SYS_GETDENTS64, uintptr(fd), uintptr(unsafe.Pointer(&r.dir[0])), uintptr(len(r.dir)))
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return e
		}
		if n == 0 {
			return nil
		}
		for b := r.dir[:n]; len(b) > nameOffset; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size <= nameOffset || size > len(b) {
				break
			}
			name := b[nameOffset:size]
			end := 0
			for end < len(name)-1 && name[end] != 0 {
				end++
			}
			name = name[:end]
			if s := string(name); s != "." && s != ".." {
				visit(name)
			}
			b = b[size:]
		}
	}
}

// nameOffset is where the name starts in struct linux_dirent64 (getdents(2)):
// 8 bytes inode, 8 offset, 2 length, 1 type.
const nameOffset = 19

// numbers lists the entries of directory name that are decimal numbers. The
// result is valid until the next call.
func (r *raw) numbers(at int, name []byte) ([]int, error) {
	fd, err := r.open(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer closeFD(fd)
	r.ids = r.ids[:0]
	err = r.entries(fd, func(name []byte) {
		if n, ok := ParseSmall(name); ok {
			r.ids = append(r.ids, n)
		}
	})
	return r.ids, err
}

// vanished says whether err means that the process ended while it was read.
func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist)
}

// because turns an error into the sentence of a Gap.
func because(what string, err error, needs string) string {
	if needs != "" && errors.Is(err, fs.ErrPermission) {
		return what + ": " + reason(err) + " (needs " + needs + ")"
	}
	return what + ": " + reason(err)
}

// reason is the innermost text of an error, without the path.
func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
