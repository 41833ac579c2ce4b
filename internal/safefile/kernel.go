package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// OpenKernel opens a file or directory of a file system of the kernel's own (procfs,
// sysfs, a hierarchy of control groups) of one of these types (statfs(2), f_type),
// which is mounted at mount, and on no other that is mounted below it. Flags are
// those of open(2).
func OpenKernel(mount, name string, flags int, types ...int64) (*os.File, error) {
	full := path.Join(mount, name)
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer unix.Close(root)
	top, err := walk(root, mount)
	defer top.close()
	if err != nil {
		return nil, err
	}
	if err := top.trusted(ours()...); err != nil {
		return nil, err
	}
	var kind unix.Statfs_t
	if err := unix.Fstatfs(top.last().fd, &kind); err != nil || !slices.Contains(types, kind.Type) {
		return nil, fmt.Errorf("%s is another file system than it should be", mount)
	}
	c, err := walk(top.last().fd, name)
	defer c.close()
	if err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if n.st.Dev != c.nodes[0].st.Dev {
			return nil, &fs.PathError{Op: "open", Path: full, Err: unix.EXDEV}
		}
	}
	f, err := reopen(c.last(), flags)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: full, Err: err}
	}
	return f, nil
}
