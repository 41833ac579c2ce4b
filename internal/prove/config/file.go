package config

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"golang.org/x/sys/unix"
)

// maxFile is the largest file that is changed, in bytes.
const maxFile = 4 << 20

var errNoFile = errors.New("no such file")

// root is the root directory of a server.
type root struct {
	dir string
	fd  int
}

func openRoot(dir string) (*root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("config: open root directory %s: %w", dir, err)
	}
	return &root{dir, fd}, nil
}

func (r *root) close() { unix.Close(r.fd) }

// at opens a path inside the root, which nothing in it can leave.
func (r *root) at(name string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for range 8 {
		fd, err := unix.Openat2(r.fd, "/"+strings.TrimLeft(name, "/"), &how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if (errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)) && r.dir == "/" {
			return unix.Open(name, flags|unix.O_CLOEXEC, 0)
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}

// attr is what a file has besides its content.
type attr struct {
	Mode    uint32            `json:"mode"` // permission bits
	UID     uint32            `json:"uid"`
	GID     uint32            `json:"gid"`
	ATimeNS int64             `json:"atime_ns"`
	MTimeNS int64             `json:"mtime_ns"`
	X       map[string][]byte `json:"x,omitempty"` // extended attributes: ACLs, labels
}

// same leaves out when it was read last.
func (a attr) same(b attr) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.MTimeNS == b.MTimeNS &&
		maps.EqualFunc(a.X, b.X, bytes.Equal)
}

// file is a file of a configuration as it is now.
type file struct {
	root    *root
	path    string // in the root, behind symbolic links
	dir     int    // its directory, O_PATH
	text    []byte
	attr    attr
	changed int64 // the later of mtime and ctime, Unix nanoseconds
	inPlace bool  // it is a mount or has other names: it cannot be renamed over
}

func (f *file) close() {
	if f.dir >= 0 {
		unix.Close(f.dir)
		f.dir = -1
	}
}

// open reads a file. errNoFile: there is none.
func (r *root) open(name string) (*file, error) {
	name = rootfs.At(r.dir).Target(name)
	dir, err := r.at(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoFile
	}
	if err != nil {
		return nil, fmt.Errorf("config: open directory of %s: %w", name, err)
	}
	f := &file{root: r, path: name, dir: dir}
	if err := f.read(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *file) read() error {
	fd, err := unix.Openat(f.dir, path.Base(f.path), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return errNoFile
	}
	if err != nil {
		return fmt.Errorf("config: open %s: %w", f.path, err)
	}
	in := os.NewFile(uintptr(fd), f.path)
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("config: stat %s: %w", f.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("config: %s is not a regular file", f.path)
	}
	if f.text, err = io.ReadAll(io.LimitReader(in, maxFile+1)); err != nil {
		return fmt.Errorf("config: read %s: %w", f.path, err)
	}
	if len(f.text) > maxFile {
		return fmt.Errorf("config: %s is larger than %d bytes", f.path, maxFile)
	}
	f.changed = max(st.Mtim.Nano(), st.Ctim.Nano())
	f.attr = attr{Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, ATimeNS: st.Atim.Nano(), MTimeNS: st.Mtim.Nano()}
	if f.attr.X, err = xattrs(fd); err != nil {
		return fmt.Errorf("config: extended attributes of %s: %w", f.path, err)
	}
	f.inPlace = st.Nlink > 1 || mountID(fd) != mountID(f.dir)
	return nil
}

// mountID tells the mount that an open file is in; 0 where it is not told
// (proc_pid_fdinfo(5)). Renaming over a file that is a mount in the namespace of
// another would take that mount away.
func mountID(fd int) int {
	b, err := os.ReadFile("/proc/thread-self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

func xattrs(fd int) (map[string][]byte, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Flistxattr(fd, buf)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = value[:n]
	}
	return out, nil
}

// writable says why the file could not be changed.
func (f *file) writable() error {
	name, what := ".", "its directory"
	if f.inPlace {
		name, what = path.Base(f.path), "it"
	}
	if err := unix.Faccessat(f.dir, name, unix.W_OK, 0); err != nil {
		return fmt.Errorf("%s cannot be changed: %s is not writable: %w", f.path, what, err)
	}
	return nil
}

// replace gives the file another content. withTimes puts the times back too.
func (f *file) replace(text []byte, a attr, temp string, inPlace, withTimes bool) error {
	var err error
	if inPlace {
		err = f.put(path.Base(f.path), unix.O_WRONLY, text, a, withTimes)
	} else if err = f.put(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, text, a, withTimes); err == nil {
		if err = unix.Renameat(f.dir, temp, f.dir, path.Base(f.path)); err != nil {
			f.drop(temp)
		}
	}
	if err != nil {
		return fmt.Errorf("config: write %s: %w", f.path, err)
	}
	f.syncDir()
	return nil
}

// write makes a file beside this one.
func (f *file) write(name string, text []byte, a attr) error {
	return f.put(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, text, a, false)
}

func (f *file) put(name string, flags int, text []byte, a attr, withTimes bool) error {
	if flags&unix.O_EXCL != 0 {
		f.drop(name) // of an attempt that was stopped
	}
	fd, err := unix.Openat(f.dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), f.path)
	err = fill(out, text, a, withTimes)
	if closing := out.Close(); err == nil {
		err = closing
	}
	if err != nil && flags&unix.O_EXCL != 0 {
		f.drop(name)
	}
	return err
}

func fill(out *os.File, text []byte, a attr, withTimes bool) error {
	fd := int(out.Fd())
	if _, err := out.Write(text); err != nil {
		return err
	}
	if err := out.Truncate(int64(len(text))); err != nil {
		return err
	}
	if err := unix.Fchown(fd, int(a.UID), int(a.GID)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, a.Mode); err != nil { // after chown, which takes bits away
		return err
	}
	have, err := xattrs(fd)
	if err != nil {
		return err
	}
	for name, value := range a.X {
		if bytes.Equal(have[name], value) && have[name] != nil {
			continue
		}
		if err := unix.Fsetxattr(fd, name, value, 0); err != nil {
			return fmt.Errorf("extended attribute %s: %w", name, err)
		}
	}
	if err := out.Sync(); err != nil {
		return err
	}
	if !withTimes {
		return nil
	}
	return setTimes(fd, a)
}

// setTimes keeps nanoseconds, which futimes(3) would cut off.
func setTimes(fd int, a attr) error {
	ts := []unix.Timespec{unix.NsecToTimespec(a.ATimeNS), unix.NsecToTimespec(a.MTimeNS)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/thread-self/fd/"+strconv.Itoa(fd), ts, 0)
}

// drop takes a temporary file away that was left.
func (f *file) drop(temp string) { _ = unix.Unlinkat(f.dir, temp, 0) }

// syncDir has the rename reach the disk.
func (f *file) syncDir() {
	fd, err := unix.Openat(f.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Fsync(fd)
		unix.Close(fd)
	}
}

// tempName begins with a dot, which no include with a wildcard matches.
func tempName() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return ".slowray-" + hex.EncodeToString(b)
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// packed is a file's content, compressed; base64 in JSON.
type packed []byte

func pack(text []byte) packed {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

func (p packed) unpack() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxFile+1))
}
