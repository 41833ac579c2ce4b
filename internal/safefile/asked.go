package safefile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// UnfinishedPrefix begins the names of files that Write has not finished.
const UnfinishedPrefix = ".slowray-"

// Write writes the file at name, as a person asked for it, whole or not at all,
// also after a power cut; only its owner may read it (mode 0600). The directory may
// be anybody's: who else can write to it can take the file away, and no more. A
// symbolic link at name keeps pointing, and what it points to is replaced, but a
// link of another user than root and the calling one is refused wherever it is on
// the path, as is what is there and no regular file. The error is one line.
func Write(name string, write func(*os.File) error) error {
	t, err := openTarget(name)
	if err != nil {
		return err
	}
	defer t.dir.Close()
	return t.plain(replace(t.dir, t.name, UnfinishedPrefix+rand.Text(), write))
}

// Writable says early whether Write will be able to write.
func Writable(name string) error {
	t, err := openTarget(name)
	if err != nil {
		return err
	}
	defer t.dir.Close()
	unfinished := UnfinishedPrefix + rand.Text()
	f, err := t.dir.OpenFile(unfinished, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return t.plain(err)
	}
	f.Close()
	return t.plain(t.dir.Remove(unfinished))
}

// target is where a file is to be written: a name in a directory that is held.
type target struct {
	dir  *os.Root
	name string
	path string // for people
}

// openTarget follows a path, and the links at its end.
func openTarget(name string) (*target, error) {
	at, err := whole(name)
	for range maxLinks {
		if err != nil {
			return nil, err
		}
		var t *target
		if t, at, err = targetAt(at); t != nil {
			return t, nil
		}
	}
	if err == nil {
		err = &fs.PathError{Op: "open", Path: name, Err: unix.ELOOP}
	}
	return nil, err
}

// whole is a path from the root on, as it stands: what ".." is depends on links.
func whole(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	here, err := os.Getwd()
	return here + "/" + name, err
}

// Parent opens the directory in which others are to find what is made there, and
// gives its name in there. The path must be in the hands of root and the calling user
// alone, or another could put something else there; a sticky directory, as /tmp, will
// do. What has the name by now is not looked at.
func Parent(name string) (dir *os.Root, base string, err error) {
	at, err := whole(name)
	if err != nil {
		return nil, "", err
	}
	c, base, err := parent(at)
	defer c.close()
	if err == nil {
		err = c.trusted(ours()...)
	}
	if err != nil {
		return nil, "", err
	}
	dir, err = rooted(c.last(), c.path())
	return dir, base, err
}

// parent walks to the directory of a file.
func parent(at string) (c *chain, base string, err error) {
	above, base := path.Split(at)
	if base == "" || base == "." || base == ".." {
		return &chain{}, "", fmt.Errorf("%s: is a directory", at)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &chain{}, "", &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer unix.Close(root)
	c, err = walk(root, above)
	for _, link := range c.links {
		if err := ownLink(&link); err != nil {
			return c, "", err // rather than where it leads
		}
	}
	if err == nil && !c.last().isDir() {
		err = &fs.PathError{Op: "open", Path: path.Join(c.path(), base), Err: unix.ENOTDIR}
	}
	return c, base, err
}

// targetAt gives the file at an absolute path, or where a link there leads.
func targetAt(at string) (t *target, next string, err error) {
	c, base, err := parent(at)
	defer c.close()
	if err != nil {
		return nil, "", err
	}
	dir, here := c.last(), path.Join(c.path(), base)
	step("target")
	switch n, err := openNode(dir.fd, base); {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return nil, "", &fs.PathError{Op: "open", Path: here, Err: err}
	default:
		defer unix.Close(n.fd)
		switch n.st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
		case unix.S_IFLNK:
			n.name = here
			if err := ownLink(&n); err != nil {
				return nil, "", err
			}
			next, err := linkTarget(n.fd)
			if err != nil {
				return nil, "", &fs.PathError{Op: "readlink", Path: here, Err: err}
			}
			if !strings.HasPrefix(next, "/") {
				next = c.path() + "/" + next
			}
			return nil, next, nil
		default:
			return nil, "", fmt.Errorf("%s: not a regular file", here)
		}
	}
	r, err := rooted(dir, c.path())
	if err != nil {
		return nil, "", err
	}
	return &target{r, base, here}, "", nil
}

// ownLink refuses a symbolic link that somebody else made.
func ownLink(n *node) error { return owned("the symbolic link "+n.name, &n.st, ours()) }

// plain is the error of a step with the path that was asked for: those of files
// that are not finished are of names that nobody knows.
func (t *target) plain(err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return fmt.Errorf("%s: %w", t.path, err)
}
