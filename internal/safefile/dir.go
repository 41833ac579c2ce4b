package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is a directory of slowray's own, held open: its files are reached by
// names in it, whatever becomes of the path. Of os.Root it has all that is done
// to them.
type Dir struct {
	*os.Root
	path string
}

// OpenDir opens a directory that only root and the calling user can change, and
// that no other can have put in place of it: each component of the path, and
// each link on it, belongs to one of them, and only they can write to it. Errors
// about what others could do wrap [ErrUnsafe].
func OpenDir(name string) (*Dir, error) { return openDir(name, nil) }

// MakeDir is OpenDir, and makes what is missing of the path: the directory with
// the permissions perm, those above it with 0755.
func MakeDir(name string, perm fs.FileMode) (*Dir, error) { return openDir(name, &perm) }

func openDir(name string, perm *fs.FileMode) (*Dir, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer unix.Close(root)
	c, err := walk(root, name)
	for range maxDepth {
		if perm == nil || !errors.Is(err, unix.ENOENT) {
			break
		}
		err = c.mkdir(*perm)
		c.close()
		if err != nil {
			return nil, err
		}
		c, err = walk(root, name)
	}
	defer c.close()
	if err != nil {
		return nil, err
	}
	if err := c.trusted(ours()...); err != nil {
		return nil, err
	}
	n := c.last()
	if !n.isDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.ENOTDIR}
	}
	if err := closed(name, &n.st); err != nil { // also where it is sticky
		return nil, err
	}
	r, err := rooted(n, name)
	if err != nil {
		return nil, err
	}
	return &Dir{r, name}, nil
}

// rooted gives a directory that was walked to as an os.Root. Errors about its files
// name path; what is open is the directory that was walked to, and no other.
func rooted(n *node, path string) (*os.Root, error) {
	r, err := OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return still(r, path, n.is)
}

// still gives a directory that was opened if it is the one that was looked at before; else
// it closes it.
func still(r *os.Root, path string, is func(fs.FileInfo) bool) (*os.Root, error) {
	st, err := r.Stat(".")
	if err == nil && !is(st) {
		err = fmt.Errorf("%s was replaced while it was opened: %w", path, ErrUnsafe)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// OpenRoot opens a directory that may be anybody's: what is below it is reached by
// names that no link and no rename leads out of it.
func OpenRoot(name string) (*os.Root, error) {
	// With a slash at the end nothing but a directory is opened: a FIFO in its place
	// would be waited for.
	return os.OpenRoot(strings.TrimSuffix(name, "/") + "/")
}

// is says whether a node is the file that was looked at.
func (n *node) is(st fs.FileInfo) bool {
	sys := st.Sys().(*syscall.Stat_t)
	return sys.Dev == n.st.Dev && sys.Ino == n.st.Ino
}

// maxDepth bounds how many directories are made for one.
const maxDepth = 64

// ours are the users whose hands slowray's own directories may be in.
func ours() []uint32 { return []uint32{0, uint32(os.Geteuid())} }

// mkdir makes the first directory that is missing of a path: with perm where it is
// the last one.
func (c *chain) mkdir(perm fs.FileMode) error {
	if err := c.trusted(ours()...); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if len(c.rest) == 1 {
		mode = perm
	}
	err := unix.Mkdirat(c.last().fd, c.rest[0], uint32(mode.Perm()))
	if err == nil {
		err = syncNode(c.last())
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &fs.PathError{Op: "mkdir", Path: path.Join(c.path(), c.rest[0]), Err: err}
	}
	return nil
}

// syncNode has the names in a directory outlive a power cut.
func syncNode(n *node) error {
	fd, err := unix.Openat(n.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return syncable(unix.Fsync(fd))
}

// syncable is nil for the error of a file system that cannot sync directories.
func syncable(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// RemoveDir removes a directory, if it is empty and nobody but root and the calling
// user can have put another in its place.
func RemoveDir(name string) error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer unix.Close(root)
	c, err := walk(root, name)
	defer c.close()
	if err == nil {
		err = c.trusted(ours()...)
	}
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(c.dir().fd, c.last().name, unix.AT_REMOVEDIR); err != nil {
		return &fs.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}

// Path is where the directory was when it was opened.
func (d *Dir) Path() string { return d.path }

// Sub opens a directory in this one; it is made with mode 0700 where there is
// none. Symbolic links and what others can write to are refused.
func (d *Dir) Sub(name string) (*Dir, error) {
	if err := d.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	seen, err := d.Lstat(name)
	if err != nil {
		return nil, err
	}
	at := filepath.Join(d.path, name)
	if !seen.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: at, Err: unix.ENOTDIR}
	}
	st := &unix.Stat_t{Uid: seen.Sys().(*syscall.Stat_t).Uid, Mode: seen.Sys().(*syscall.Stat_t).Mode}
	if err := errors.Join(owned(at, st, ours()), closed(at, st)); err != nil {
		return nil, err
	}
	// With a name behind it nothing but a directory is opened: a FIFO that has taken its
	// place would be waited for.
	r, err := d.OpenRoot(name + "/.")
	if err != nil {
		return nil, err
	}
	if r, err = still(r, at, func(st fs.FileInfo) bool { return os.SameFile(st, seen) }); err != nil {
		return nil, err
	}
	return &Dir{r, at}, nil
}

// Check says what has become of the directory since it was opened: nil as long as
// its path leads to it, and nobody else can change it.
func (d *Dir) Check() error {
	there, err := OpenDir(d.path)
	if err != nil {
		return err
	}
	defer there.Close()
	is, err := there.Stat(".")
	if err != nil {
		return err
	}
	was, err := d.Stat(".")
	if err == nil && !os.SameFile(is, was) {
		err = fmt.Errorf("%s %w", d.path, ErrReplaced)
	}
	return err
}

// ErrReplaced is wrapped by the error about a directory whose path leads to another
// one by now.
var ErrReplaced = errors.New("was moved, and another directory is in its place")

// OpenRegular is [OpenRegular] for a file of the directory.
func (d *Dir) OpenRegular(name string) (*os.File, error) { return OpenRegular(d.Root, name) }

// ErrNotRegular is wrapped by the error about a FIFO, a directory, or a device.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens a file for reading. It refuses what is no regular file: a FIFO
// would be waited for.
func OpenRegular(in *os.Root, name string) (*os.File, error) {
	f, err := in.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", f.Name(), ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadRegular reads a file of at most the given number of bytes; it refuses what is
// larger, and what is no regular file.
func ReadRegular(in *os.Root, name string, most int64) ([]byte, error) {
	f, err := OpenRegular(in, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: larger than %d bytes", f.Name(), most)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Replace gives a file of the directory another content, of mode 0600: it is
// there whole or as it was, also after a power cut. The unfinished file is the
// name with ".new" behind it.
func (d *Dir) Replace(name string, data []byte) error {
	return d.ReplaceBy(name, name+".new", func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// ReplaceBy is Replace for a content that write writes. Until it is whole it has
// the name unfinished, in the same directory.
func (d *Dir) ReplaceBy(name, unfinished string, write func(*os.File) error) error {
	// What a killed run has left of this name may be anything.
	if err := d.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replace(d.Root, name, unfinished, write)
}

// replace writes a file under a name that is not there yet, and then gives it the
// one it is to have.
func replace(in *os.Root, name, unfinished string, write func(*os.File) error) error {
	f, err := in.OpenFile(unfinished, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	step("created")
	err = write(f)
	step("written")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		step("synced")
		err = in.Rename(unfinished, name)
	}
	if err != nil {
		_ = in.Remove(unfinished)
		return err
	}
	step("renamed")
	return syncDir(in, filepath.Dir(name))
}

// Sync has the names in the directory outlive a power cut, on file systems that
// know how.
func (d *Dir) Sync() error { return syncDir(d.Root, ".") }

// SyncIn is Sync for a directory in this one.
func (d *Dir) SyncIn(name string) error { return syncDir(d.Root, name) }

func syncDir(in *os.Root, name string) error {
	f, err := in.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0) // a FIFO would be waited for
	if err != nil {
		return err
	}
	return errors.Join(syncable(f.Sync()), f.Close())
}
