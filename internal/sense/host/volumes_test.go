package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// node is a host on which a kubelet has mounted volumes of pods: a partition, a logical
// volume, a file system over the network, and a directory of the node's disk.
func node(t *testing.T) FS {
	t.Helper()
	root := t.TempDir()
	fs := FS{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys")}
	const kubelet = "/var/lib/kubelet/pods"
	put(t, fs.Proc+"/1/ns/mnt", "-> mnt:[4026531841]")
	put(t, fs.Proc+"/1/mountinfo", `1 0 259:2 / / rw - ext4 /dev/nvme0n1p2 rw
2 1 8:17 / `+kubelet+`/u1/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdb1 rw
3 1 253:0 / `+kubelet+`/u2/volumes/kubernetes.io~csi/pvc-2/mount rw - xfs /dev/mapper/vg-two rw
4 1 0:52 / `+kubelet+`/u1/volumes/kubernetes.io~nfs/pv-nfs rw - nfs4 10.0.0.5:/export/a rw,addr=10.0.0.5
5 1 0:52 / `+kubelet+`/u2/volumes/kubernetes.io~nfs/pv-nfs rw - nfs4 10.0.0.5:/export/a rw,addr=10.0.0.5
6 1 0:60 / /var/lib/other rw - btrfs /dev/sdc rw
7 1 259:2 /mnt/disks/one `+kubelet+`/u3/volumes/kubernetes.io~local-volume/local-1 rw - ext4 /dev/nvme0n1p2 rw
`)
	for number, at := range map[string]string{"8:17": "sdb/sdb1", "8:16": "sdb", "253:0": "dm-0", "8:32": "sdc", "259:2": "nvme0n1/nvme0n1p2", "259:0": "nvme0n1"} {
		dir := fs.Sys + "/devices/block/" + at
		put(t, dir+"/dev", number+"\n")
		put(t, fs.Sys+"/dev/block/"+number, "-> ../../devices/block/"+at)
		put(t, fs.Sys+"/class/block/"+filepath.Base(at), "-> ../../devices/block/"+at)
		if strings.Contains(at, "/") {
			put(t, dir+"/partition", "1\n")
		}
	}
	put(t, fs.Sys+"/devices/block/dm-0/slaves/sdb1", "-> ../../../../devices/block/sdb/sdb1")
	return fs
}

func mountsOf(t *testing.T, lines string) (list []Mount) {
	t.Helper()
	for line := range strings.Lines(lines) {
		m, ok := parseMount([]byte(strings.TrimSpace(line)))
		if !ok {
			t.Fatal(line)
		}
		list = append(list, m)
	}
	return list
}

func TestStorage(t *testing.T) {
	s := node(t).Storage(enough(), nil)
	const kubelet = "/var/lib/kubelet/pods"
	for _, c := range []struct{ name, line, uid, store, kubelet string }{
		{"a partition", "40 9 8:17 / /data rw - ext4 /dev/sdb1 rw", "u1", "8:16", kubelet + "/u1/volumes/kubernetes.io~csi/pvc-1/mount"},
		{"a directory of it (subPath)", "40 9 8:17 /db /data rw - ext4 /dev/sdb1 rw", "", "8:16", kubelet + "/u1/volumes/kubernetes.io~csi/pvc-1/mount"},
		{"a logical volume, which lies on a partition", "40 9 253:0 / /data rw - xfs /dev/mapper/vg-two rw", "u2", "8:16", kubelet + "/u2/volumes/kubernetes.io~csi/pvc-2/mount"},
		{"a server, for two pods", "40 9 0:52 / /data rw - nfs4 10.0.0.5:/export/a rw", "u2", "10.0.0.5", kubelet + "/u2/volumes/kubernetes.io~nfs/pv-nfs"},
		{"another export of it", "40 9 0:53 / /data rw - nfs [fe80::1]:/export/b rw", "u2", "[fe80::1]", ""},
		{"a share", "40 9 0:54 / /data rw - cifs //files/share rw", "", "files", ""},
		{"a file system with a number of its own", "40 9 0:60 / /data rw - btrfs /dev/sdc rw", "", "8:32", ""},
		{"an emptyDir", "40 9 259:2 " + kubelet + "/u4/volumes/kubernetes.io~empty-dir/scratch /scratch rw - ext4 /dev/nvme0n1p2 rw", "u4", "259:0", kubelet + "/u4/volumes/kubernetes.io~empty-dir/scratch"},
		{"a local volume", "40 9 259:2 /mnt/disks/one /data rw - ext4 /dev/nvme0n1p2 rw", "u3", "259:0", kubelet + "/u3/volumes/kubernetes.io~local-volume/local-1"},
		{"another directory of the node's disk", "40 9 259:2 /mnt/disks/one-more /data rw - ext4 /dev/nvme0n1p2 rw", "u3", "259:0", ""},
		{"a container's own layer", "40 9 0:70 / / rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/var/lib/containerd/snapshots/7/fs,workdir=/w", "", "259:0", ""},
		{"memory", "40 9 0:71 / /tmp rw - tmpfs tmpfs rw", "", "", ""},
		{"a disk that is gone", "40 9 9:9 / /data rw - ext4 /dev/gone rw", "", "9:9", ""},
	} {
		m := mountsOf(t, c.line)[0]
		if got := s.Of(&m); got != c.store {
			t.Errorf("%s is stored on %q, want %q", c.name, got, c.store)
		}
		if got := s.Kubelet(&m, c.uid); got != c.kubelet {
			t.Errorf("%s: the kubelet mounted it at %q, want %q", c.name, got, c.kubelet)
		}
	}
	layer := mountsOf(t, "40 9 0:70 / / rw - overlay overlay rw,upperdir=/var/lib/x")[0]
	layer.Others = true
	if got := s.Of(&layer); got != "" {
		t.Errorf("a user's own overlay says where it lies, and is believed: %q", got)
	}
}

// TestOpenOn: what a process has open lies on a disk, on a server, or on neither.
func TestOpenOn(t *testing.T) {
	fs := node(t)
	put(t, fs.Proc+"/7/ns/mnt", "-> mnt:[4026531999]")
	put(t, fs.Proc+"/7/mountinfo", `40 9 8:17 / /data rw - ext4 /dev/sdb1 rw
41 40 0:52 / /share rw - nfs4 10.0.0.5:/export/a rw
42 40 0:71 / /tmp rw - tmpfs tmpfs rw
`)
	for fd, f := range []struct {
		target string
		mount  int
	}{{"/tmp/a", 42}, {"/data/a", 40}, {"/data/b", 40}, {"/share/a", 41}, {"pipe:[3]", 14}, {"/elsewhere", 99}} {
		put(t, fmt.Sprintf("%s/7/fd/%d", fs.Proc, fd), "-> "+f.target)
		put(t, fmt.Sprintf("%s/7/fdinfo/%d", fs.Proc, fd), fmt.Sprintf("pos:\t0\nflags:\t0100002\nmnt_id:\t%d\nino:\t3\n", f.mount))
	}
	s := fs.Storage(enough(), nil)
	if got := s.OpenOn(enough(), 7); !slices.Equal(got, []string{"8:16", "10.0.0.5"}) {
		t.Errorf("open files lie on %q", got)
	}
	if got := s.OpenOn(enough(), 8); got != nil {
		t.Errorf("a process that ended: %q", got)
	}
}

// TestStorageOfKubelets: a kubelet in a container mounts where the host does not see it.
func TestStorageOfKubelets(t *testing.T) {
	fs := node(t)
	put(t, fs.Proc+"/50/ns/mnt", "-> mnt:[4026532000]")
	put(t, fs.Proc+"/50/mountinfo", "90 9 8:32 / /var/lib/kubelet/pods/u9/volumes/kubernetes.io~csi/pvc-9/mount rw - ext4 /dev/sdc rw\n")
	m := mountsOf(t, "40 9 8:32 / /data rw - ext4 /dev/sdc rw")[0]
	if got := fs.Storage(enough(), []int{50, 51}).Kubelet(&m, ""); !strings.HasSuffix(got, "/pvc-9/mount") {
		t.Errorf("mounted at %q", got)
	}
	if got := fs.Storage(enough(), nil).Kubelet(&m, ""); got != "" {
		t.Errorf("without its mounts: %q", got)
	}
}

// TestRealStorage: the disk under this host's files is one that /proc/diskstats has, or none.
func TestRealStorage(t *testing.T) {
	fs := Default()
	s := fs.Storage(enough(), nil)
	m, ok := fs.MountAt(os.Getpid(), "/")
	if !ok {
		t.Fatal("no mount at /")
	}
	store := s.Of(&m)
	if m.Major == 0 && !strings.HasPrefix(m.Source, "/dev/") {
		t.Skipf("NOT tested: / is a %s, which lies on no disk of its own", m.Type)
	}
	stats, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		t.Fatal(err)
	}
	major, minor, _ := strings.Cut(store, ":")
	if !slices.ContainsFunc(strings.Split(string(stats), "\n"), func(line string) bool {
		f := strings.Fields(line)
		return len(f) > 2 && f[0] == major && f[1] == minor
	}) {
		t.Errorf("/ (%s on %s) is stored on %q, which is no disk", m.Type, m.Source, store)
	}
}
