package wait

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/sense/host"
)

const (
	maxProcesses = 8192   // whose open files are looked at
	maxOpenFiles = 400000 // of the whole host
	maxNameBytes = 8 << 20
)

// openFiles is who on the host holds which pipe, socket or FIFO: one pass over
// /proc/*/fd.
type openFiles struct {
	held      []holding            // pipes and sockets, by key and pid
	named     map[string][]holding // other files, by the last component of their name
	netns     map[uint64]int       // network namespaces: inode → a process in it
	denied    int                  // processes whose files may not be read
	deniedPID int                  // one of them
	seen      int                  // of all kinds
	text      int                  // bytes of the names
	cut       bool                 // there are more than maxOpenFiles
}

// holding is a descriptor of a process.
type holding struct {
	key uint64 // pipeKey or socketKey
	pid int32
	fd  int32
}

func pipeKey(inode uint64) uint64   { return inode << 1 }
func socketKey(inode uint64) uint64 { return inode<<1 | 1 }

// opened is the open files of the host, read at the first use.
func (l *look) opened() *openFiles {
	if l.scanned != nil {
		return l.scanned
	}
	o := &openFiles{named: map[string][]holding{}, netns: map[uint64]int{}}
	l.scanned = o
	pids, err := numbersIn(l.fs.Proc)
	if err != nil {
		l.miss("the processes of this host: " + err.Error())
		return o
	}
	slices.Sort(pids)
	if len(pids) > maxProcesses {
		l.miss(fmt.Sprintf("open files of %d of the host's %d processes were not looked at", len(pids)-maxProcesses, len(pids)))
		pids = pids[:maxProcesses]
	}
	link := make([]byte, 4096)
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue // what a shell made us inherit holds up nobody
		}
		if n, err := unix.Readlink(fmt.Sprintf("%s/%d/ns/net", l.fs.Proc, pid), link); err == nil {
			if inode, ok := bracketed(string(link[:n]), "net:["); ok && o.netns[inode] == 0 {
				o.netns[inode] = pid
			}
		}
		err := l.scan(o, fmt.Sprintf("%s/%d/fd", l.fs.Proc, pid), pid, link)
		if errors.Is(err, fs.ErrPermission) {
			if o.denied++; o.denied == 1 {
				o.deniedPID = pid
			}
		}
		if o.cut {
			break
		}
	}
	slices.SortFunc(o.held, func(a, b holding) int {
		switch {
		case a.key != b.key:
			if a.key < b.key {
				return -1
			}
			return 1
		case a.pid != b.pid:
			return int(a.pid) - int(b.pid)
		}
		return int(a.fd) - int(b.fd)
	})
	return o
}

// scan notes the open files of one process.
func (l *look) scan(o *openFiles, dir string, pid int, link []byte) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	at := int(d.Fd())
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			fd, ok := host.ParseSmall([]byte(name))
			if !ok {
				continue
			}
			n, err := unix.Readlinkat(at, name, link)
			if err != nil || n <= 0 {
				continue
			}
			if o.seen++; o.seen > maxOpenFiles || o.text > maxNameBytes {
				o.cut = true
				return nil
			}
			if err := l.budget.File(); err != nil {
				o.cut = true
				return nil
			}
			o.note(string(link[:n]), pid, fd)
		}
		if err != nil || len(names) == 0 {
			return nil // io.EOF, or the process ended
		}
	}
}

func (o *openFiles) note(link string, pid, fd int) {
	h := holding{pid: int32(pid), fd: int32(fd)}
	if inode, ok := bracketed(link, "pipe:["); ok {
		h.key = pipeKey(inode)
		o.held = append(o.held, h)
	} else if inode, ok := bracketed(link, "socket:["); ok {
		h.key = socketKey(inode)
		o.held = append(o.held, h)
	} else if strings.HasPrefix(link, "/") && link != "/dev/null" {
		base := path.Base(link)
		if o.named[base] == nil {
			o.text += len(base)
		}
		if len(o.named[base]) < maxThreads {
			o.named[base] = append(o.named[base], h)
		}
	}
}

// of is the holders of a pipe or socket, by pid.
func (o *openFiles) of(key uint64) []holding {
	from, _ := slices.BinarySearchFunc(o.held, key, func(h holding, key uint64) int {
		switch {
		case h.key < key:
			return -1
		case h.key > key:
			return 1
		}
		return 0
	})
	to := from
	for to < len(o.held) && o.held[to].key == key {
		to++
	}
	return o.held[from:to]
}

// by is the pipes and sockets that a process holds.
func (o *openFiles) by(pid int) []holding {
	var out []holding
	for _, h := range o.held {
		if int(h.pid) == pid {
			out = append(out, h)
		}
	}
	return out
}

// holdersOf is who holds a pipe, FIFO or socket.
func (l *look) holdersOf(o object) []holding {
	switch o.kind {
	case pipeObject:
		return l.opened().of(pipeKey(o.inode))
	case socketObject:
		return l.opened().of(socketKey(o.inode))
	case fifoObject, fileObject:
		return l.holdersOfFile(o)
	}
	return nil
}

// holdersOfFile is who holds a file with a name: the same inode, by whatever
// path each process knows it. Only files that end in the same name are asked.
func (l *look) holdersOfFile(o object) []holding {
	var out []holding
	for _, h := range l.opened().named[path.Base(o.link)] {
		var st unix.Statx_t
		name := l.fs.Proc + "/" + strconv.Itoa(int(h.pid)) + "/fd/" + strconv.Itoa(int(h.fd))
		if unix.Statx(unix.AT_FDCWD, name, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st) != nil {
			continue
		}
		if st.Ino == o.inode && uint64(st.Dev_major)<<32|uint64(st.Dev_minor) == o.dev {
			out = append(out, h)
		}
	}
	return out
}
