package host

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

var nameFD = []byte("fd\x00")

// FDCount is the number of open files of a process: st_size of /proc/PID/fd
// where the kernel gives it (since 6.2, commit f1f1f2569901; needs no rights),
// else the entries of the directory (needs CAP_SYS_PTRACE for others'
// processes).
func (fs FS) FDCount(pid int) (int, error) {
	r := getRaw()
	defer r.put()
	dir, err := r.open(unix.AT_FDCWD, r.num(fs.Proc+"/", pid, ""), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return 0, fmt.Errorf("open files of process %d: %w", pid, err)
	}
	defer closeFD(dir)
	n, err := r.countFDs(dir, fs.real())
	if err != nil {
		return 0, fmt.Errorf("open files of process %d: %w", pid, err)
	}
	return n, nil
}

// real says whether Proc is a procfs: a directory of a fixture has an st_size
// too, but of another meaning.
func (fs FS) real() bool {
	var st unix.Statfs_t
	return unix.Statfs(fs.Proc, &st) == nil && int64(st.Type) == unix.PROC_SUPER_MAGIC
}

// countFDs counts the open files of the process with directory dir.
func (r *raw) countFDs(dir int, procfs bool) (int, error) {
	if procfs {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, "fd", &st, 0); err != nil {
			return 0, err
		}
		if st.Size > 0 && st.Size <= math.MaxInt32 {
			return int(st.Size), nil
		}
	}
	fd, err := r.open(dir, nameFD, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	defer closeFD(fd)
	n := 0
	err = r.entries(fd, func([]byte) { n++ })
	return n, err
}

// SocketFDCount is the number of open files of a process that are sockets.
// Needs CAP_SYS_PTRACE for others' processes.
func (fs FS) SocketFDCount(pid int) (int, error) {
	r := getRaw()
	defer r.put()
	n := 0
	err := r.sockets(fs.Proc, pid, func(uint64) { n++ })
	if err != nil {
		return 0, fmt.Errorf("sockets of process %d: %w", pid, err)
	}
	return n, nil
}

// SocketOwners maps the inode of each socket to the processes among pids that
// hold it, in ascending order. The second result is how many processes could
// not be read for lack of rights (CAP_SYS_PTRACE); those that ended are not
// counted.
func (fs FS) SocketOwners(pids []int) (map[uint64][]int, int) {
	r := getRaw()
	defer r.put()
	type holding struct {
		inode uint64
		pid   int
	}
	var held []holding
	unread := 0
	for _, pid := range pids {
		err := r.sockets(fs.Proc, pid, func(inode uint64) { held = append(held, holding{inode, pid}) })
		if err != nil && !vanished(err) {
			unread++
		}
	}
	slices.SortFunc(held, func(a, b holding) int {
		if a.inode != b.inode {
			if a.inode < b.inode {
				return -1
			}
			return 1
		}
		return a.pid - b.pid
	})
	held = slices.Compact(held)

	// One array holds all owners; each socket's list is a part of it that
	// cannot grow into the next.
	all := make([]int, len(held))
	owners := make(map[uint64][]int, len(held))
	for i := 0; i < len(held); {
		j := i
		for ; j < len(held) && held[j].inode == held[i].inode; j++ {
			all[j] = held[j].pid
		}
		owners[held[i].inode] = all[i:j:j]
		i = j
	}
	return owners, unread
}

// sockets calls visit with the inode of each socket among the open files of a
// process. Linked names look like "socket:[12345]" (sockfs_dname, net/socket.c).
func (r *raw) sockets(proc string, pid int, visit func(inode uint64)) error {
	fd, err := r.open(unix.AT_FDCWD, r.num(proc+"/", pid, "/fd"), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	prefix := []byte("socket:[")
	return r.entries(fd, func(name []byte) {
		// The entry lies in the directory buffer with its NUL behind it.
		target, err := r.readlink(fd, name[:len(name)+1])
		if err != nil || !bytes.HasPrefix(target, prefix) {
			return
		}
		if inode, ok := parseNSLink(target); ok {
			visit(inode)
		}
	})
}
