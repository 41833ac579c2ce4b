package host

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// Storage says what file systems are stored on, by the mounts of the host. It touches no
// file system but procfs, sysfs and devtmpfs.
type Storage struct {
	fs       FS
	host     MountTable // of process 1
	kubelets []Mount    // mounted by kubelets of this host for pods
	disks    map[string]string
}

// Cut says that the host has more mounts than were read, and that s does not know all.
func (s *Storage) Cut() bool { return s.host.Cut }

// maxKubelets bounds the kubelets whose mounts are read: kind runs several on a host, each
// with mounts of its own.
const maxKubelets = 4

// Storage reads the mounts of the host and of its kubelets.
func (fs FS) Storage(b *budget.Budget, kubelets []int) *Storage {
	s := &Storage{fs: fs, disks: map[string]string{}}
	kubelets = kubelets[:min(len(kubelets), maxKubelets)]
	var err error
	if s.host, err = fs.MountTableOf(b.Share(2), 1); err != nil { // closed even to root in some sandboxes
		s.host, _ = fs.MountTableOf(b.Share(2), os.Getpid())
	}
	tables := []*MountTable{&s.host}
	for i, pid := range kubelets {
		if t, err := fs.MountTableOf(b.Share(len(kubelets)-i+1), pid); err == nil && t.NS != s.host.NS {
			tables = append(tables, &t)
		}
	}
	for _, t := range tables {
		for i := range t.Mounts {
			if m := &t.Mounts[i]; inVolumes(m.Dir) {
				s.kubelets = append(s.kubelets, *m)
			}
		}
	}
	return s
}

// inVolumes says that a directory is one that a kubelet keeps for a volume of a pod.
func inVolumes(dir string) bool {
	uid, _, _ := observe.KubeletVolume(dir)
	return uid != ""
}

// Kubelet is where a kubelet mounted for a pod what is mounted at m, as a whole or a
// directory of it; of several that of the pod with this UID. Empty where none has.
func (s *Storage) Kubelet(m *Mount, uid string) string {
	if inVolumes(m.Root) { // an emptyDir, which is a directory of the node's disk
		return printable.Name(m.Root, 1024)
	}
	best, rank := "", 0
	for i := range s.kubelets {
		k := &s.kubelets[i]
		if k.Major != m.Major || k.Minor != m.Minor || !below(m.Root, k.Root) {
			continue
		}
		// Of the directories of the node's own disk the innermost one counts.
		r := 1 + 2*len(k.Root)
		if uid != "" && strings.Contains(k.Dir, "/pods/"+uid+"/") {
			r++
		}
		if r > rank {
			best, rank = printable.Name(k.Dir, 1024), r
		}
	}
	return best
}

// below says that a directory is another one, or in it.
func below(name, dir string) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// networkTypes are the file systems whose source names a server.
var networkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "fuse.glusterfs", "lustre"}

// Of is what a mount is stored on, as observe.WaitMount.Store.
func (s *Storage) Of(m *Mount) string {
	switch {
	case slices.Contains(networkTypes, m.Type):
		return serverOf(m.Source)
	case m.Type == "overlay" && m.Others: // by whom it was mounted could say anything
		return ""
	case m.Type == "overlay":
		if dir := upperDir(m.Superblock); dir != "" {
			if under, ok := s.host.Of(dir); ok && under.Type != "overlay" {
				return s.Of(&under)
			}
		}
		return ""
	case m.Major != 0:
		return s.disk(fmt.Sprintf("%d:%d", m.Major, m.Minor))
	case strings.HasPrefix(m.Source, "/dev/"): // btrfs, whose number is its own
		name := path.Base(m.Source)
		b, err := budget.Head(s.fs.Sys+"/class/block/"+name+"/dev", 64)
		if err != nil || !deviceNumber(trim(b)) {
			return ""
		}
		return s.disk(string(trim(b)))
	}
	return ""
}

func trim(b []byte) []byte { return []byte(strings.TrimSpace(string(b))) }

// serverOf is the server in the source of a network file system: "10.0.0.5:/export",
// "[fe80::1]:/export", "//server/share".
func serverOf(source string) string {
	if rest, ok := strings.CutPrefix(source, "//"); ok {
		server, _, _ := strings.Cut(rest, "/")
		return printable.Name(server, 128)
	}
	server, _, ok := strings.Cut(source, ":/")
	if !ok {
		return ""
	}
	return printable.Name(server, 128)
}

// upperDir is where an overlay keeps what is written, on the host (ovl_show_options,
// fs/overlayfs/params.c).
func upperDir(options string) string {
	for o := range strings.SplitSeq(options, ",") {
		if dir, ok := strings.CutPrefix(o, "upperdir="); ok && strings.HasPrefix(dir, "/") {
			return unescapeMount(dir)
		}
	}
	return ""
}

// maxStacked is how many layers of block devices are gone down.
const maxStacked = 4

// disk is the number of the whole disk under a block device: of a partition the one that it
// is of, of a mapped device (LVM, dm-crypt) the only one that it is made of.
func (s *Storage) disk(number string) string {
	if known, ok := s.disks[number]; ok {
		return known
	}
	at := number
	for range maxStacked {
		dir, err := os.Readlink(s.fs.Sys + "/dev/block/" + at)
		if err != nil {
			break
		}
		dir = path.Join(s.fs.Sys, "dev/block", dir)
		under := path.Join(dir, "..")
		if _, err := os.Stat(dir + "/partition"); err != nil {
			entries, _ := os.ReadDir(dir + "/slaves")
			if len(entries) != 1 {
				break
			}
			under = dir + "/slaves/" + entries[0].Name()
		}
		b, err := budget.Head(under+"/dev", 64)
		if err != nil || !deviceNumber(trim(b)) {
			break
		}
		at = string(trim(b))
	}
	s.disks[number] = at
	return at
}

// Bounds of the open files of a process that are looked at, and of what they lie on.
const (
	maxStoreFDs = 256
	maxStores   = 8
)

// OpenOn is what the files lie on that a process has open, each once.
func (s *Storage) OpenOn(b *budget.Budget, pid int) (out []string) {
	dir := fmt.Sprintf("%s/%d", s.fs.Proc, pid)
	d, err := os.Open(dir + "/fd")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxStoreFDs)
	table, err := s.fs.MountTableOf(b.Share(2), pid)
	if err != nil {
		return nil
	}
	add := func(store string) {
		if store != "" && len(out) < maxStores && !slices.Contains(out, store) {
			out = append(out, store)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		target, err := os.Readlink(dir + "/fd/" + name)
		if err != nil || !strings.HasPrefix(target, "/") || b.File() != nil {
			continue
		}
		info, err := budget.Head(dir+"/fdinfo/"+name, 4<<10)
		if err != nil {
			continue
		}
		text, _ := AfterKey(info, "mnt_id:")
		field, _ := nextField(text)
		id, ok := ParseSmall(field)
		m, found := table.ByID(id)
		switch {
		case !ok || !found:
		case m.Type == "devtmpfs", m.Type == "tmpfs" && strings.HasPrefix(target, "/dev/"):
			var st unix.Stat_t
			if unix.Stat(dir+"/fd/"+name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
				add(s.disk(fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))))
			}
		default:
			add(s.Of(&m))
		}
	}
	return out
}

// BlockAt is the number of a block device that a process knows by this name, and what it is
// stored on; empty where there is none. Only its devices are asked.
func (s *Storage) BlockAt(t *MountTable, name string) (device, store string) {
	if m, ok := t.Of(name); !ok || m.Type != "devtmpfs" && m.Type != "tmpfs" || !t.Answers(name) {
		return "", ""
	}
	root, err := unix.Open(fmt.Sprintf("%s/%d/root", s.fs.Proc, t.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", ""
	}
	defer closeFD(root)
	fd, err := unix.Openat2(root, path.Join("/", name), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return "", ""
	}
	defer closeFD(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", ""
	}
	device = fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	return device, s.disk(device)
}
