package rootfs

import (
	"context"
	"fmt"
	"io/fs"
	"net"

	"golang.org/x/sys/unix"
)

// Dial connects to the unix stream socket at a path inside the root, and gives the
// user that listens there (SO_PEERCRED, unix(7)). Nothing is sent.
func (r Root) Dial(ctx context.Context, name string) (conn net.Conn, uid uint32, err error) {
	r = r.known()
	fd, err := do(r, name, "connect", func(o *op) (pinned, error) {
		fd, err := r.path(o, name)
		if err != nil {
			return -1, &fs.PathError{Op: "connect", Path: name, Err: err}
		}
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			err = unix.ENOTSOCK
		}
		if err != nil {
			unix.Close(fd)
			return -1, &fs.PathError{Op: "connect", Path: name, Err: err}
		}
		return pinned(fd), nil
	})
	if err != nil {
		return nil, 0, err
	}
	defer fd.Close()
	// By its descriptor: that of a path in another root would leave it at the first
	// symbolic link, and is too long for an address (107 bytes).
	var d net.Dialer
	conn, err = d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", int(fd)))
	if err != nil {
		return nil, 0, &fs.PathError{Op: "connect", Path: name, Err: err}
	}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	var cred *unix.Ucred
	if err == nil {
		var failed error
		err = raw.Control(func(s uintptr) { cred, failed = unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED) })
		if err == nil {
			err = failed
		}
	}
	if err != nil {
		conn.Close()
		return nil, 0, &fs.PathError{Op: "connect", Path: name, Err: err}
	}
	return conn, cred.Uid, nil
}

// pinned is a descriptor of O_PATH.
type pinned int

// Close implements io.Closer.
func (p pinned) Close() error {
	if p < 0 {
		return nil
	}
	return unix.Close(int(p))
}
