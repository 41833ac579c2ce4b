package safefile

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sibling is the path of a program in the directory of the running one, without symbolic
// links, for this process to execute.
//
// As root it is an error that wraps [ErrUnsafe] when anybody can change the program, or
// what the path leads to, who cannot change the running program as well: all of it
// belongs to root, to the owner of that, or to the owner of a directory above it, as of a
// checkout in which root has built, and nobody else may write to it. The owner's group may
// where it may write to the running program too, as after a build with a umask of 002.
func Sibling(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &own); err != nil { // whatever has its path by now
		return "", &fs.PathError{Op: "stat", Path: exe, Err: err}
	}
	return sibling(filepath.Join(filepath.Dir(exe), name), &own, os.Geteuid() == 0)
}

func sibling(name string, own *unix.Stat_t, root bool) (string, error) {
	top, err := OpenTree("/")
	if err != nil {
		return "", err
	}
	defer top.Close()
	c, err := walk(int(top.dir.Fd()), name)
	defer c.close()
	if err != nil {
		return "", err
	}
	if c.last().st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", &fs.PathError{Op: "execute", Path: name, Err: unix.EACCES}
	}
	if !root {
		return c.path(), nil
	}
	by := holders{users: []uint32{0, own.Uid}}
	// The running program was found at its path by the kernel: no link is on it.
	for dir := filepath.Dir(name); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return "", &fs.PathError{Op: "lstat", Path: dir, Err: err}
		}
		by.users = append(by.users, st.Uid)
	}
	if own.Mode&0o020 != 0 {
		by.groups = []uint32{own.Gid}
	}
	if err := c.heldBy(by); err != nil {
		return "", err
	}
	return c.path(), closed(c.path(), &c.last().st, by.groups...)
}
