package host

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/slowray/slowray/internal/budget"
)

// Mount is one line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	ID         int
	Major      uint32
	Minor      uint32
	Dir        string // mount point as the process sees it
	Type       string // "ext4", "nfs4", "fuse.sshfs"…
	Source     string // "/dev/vda1", "server:/export"…
	Superblock string // its options
	Options    string // those of this mount
}

// readOnly says that nothing can be written through this mount.
func (m *Mount) readOnly() bool { return m.Options == "ro" || strings.HasPrefix(m.Options, "ro,") }

// MountOf is the mount with an ID, as fdinfo names it, in the mount namespace
// of a process; false when it is not there.
func (fs FS) MountOf(pid, id int) (Mount, bool) {
	b, err := budget.Head(fmt.Sprintf("%s/%d/mountinfo", fs.Proc, pid), maxMountBytes)
	if err != nil {
		return Mount{}, false
	}
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		if m, ok := parseMount(line); ok && m.ID == id {
			return m, true
		}
	}
	return Mount{}, false
}

// readMountinfo reads the mountinfo of a process, at most maxMountBytes of it. An
// error of a budget comes with what was read before.
func readMountinfo(b *budget.Budget, name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b = b.Sub(budget.Limits{Bytes: maxMountBytes})
	var text []byte
	part := make([]byte, 64<<10)
	for {
		n, err := f.Read(part)
		if over := b.Read(int64(n)); over != nil {
			return text, over
		}
		text = append(text, part[:n]...)
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return text, err
		}
	}
}

func parseMount(line []byte) (Mount, bool) {
	head, tail, ok := strings.Cut(string(line), " - ")
	fields, types := strings.Fields(head), strings.Fields(tail)
	if !ok || len(fields) < 6 || len(types) < 1 {
		return Mount{}, false
	}
	id, ok := ParseSmall([]byte(fields[0]))
	if !ok {
		return Mount{}, false
	}
	m := Mount{ID: id, Dir: unescapeMount(fields[4]), Options: fields[5], Type: types[0]}
	major, minor, _ := strings.Cut(fields[2], ":")
	ma, _ := ParseSmall([]byte(major))
	mi, _ := ParseSmall([]byte(minor))
	m.Major, m.Minor = uint32(ma), uint32(mi)
	if len(types) > 1 {
		m.Source = unescapeMount(types[1])
	}
	if len(types) > 2 {
		m.Superblock = types[2]
	}
	return m, true
}
