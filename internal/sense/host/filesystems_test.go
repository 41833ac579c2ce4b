package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
)

func enough() *budget.Budget { return budget.New(context.Background(), budget.Limits{}) }

func TestMountTable(t *testing.T) {
	fs := FS{Proc: t.TempDir()}
	put(t, filepath.Join(fs.Proc, "7/mountinfo"), `20 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
21 20 0:30 / /srv rw - tmpfs tmpfs rw
22 21 0:31 / /srv/nfs rw - nfs4 server:/export rw
23 22 0:32 / /srv/nfs/cache rw - tmpfs tmpfs rw
24 20 0:33 / /srv ro,nosuid - tmpfs covers rw
25 20 0:34 / /srv2 rw - tmpfs tmpfs rw
`)
	if err := os.MkdirAll(filepath.Join(fs.Proc, "7/ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("mnt:[4026531841]", filepath.Join(fs.Proc, "7/ns/mnt")); err != nil {
		t.Fatal(err)
	}
	table, err := fs.MountTableOf(enough(), 7)
	if err != nil || table.NS != 4026531841 || len(table.Mounts) != 6 {
		t.Fatal(err, table)
	}
	for path, want := range map[string]int{"/etc/passwd": 20, "/srv/a": 24, "/srv": 24, "/srv2/a": 25, "/srv/nfs/x": 22, "/srv/nfs/cache/y": 23, "/": 20} {
		if m, ok := table.Of(path); !ok || m.ID != want {
			t.Errorf("%s lies on mount %d, want %d", path, m.ID, want)
		}
	}
	for dir, want := range map[string]bool{"/": false, "/srv": false, "/srv/nfs/cache": true} {
		if table.behindRemote(dir) != want {
			t.Errorf("behindRemote(%s) is not %v", dir, want)
		}
	}
	if m, _ := table.ByID(24); !m.readOnly() {
		t.Error("a read-only mount is not told")
	}
}

func TestRealFilesystems(t *testing.T) {
	list, left := Default().Filesystems(enough(), []int{os.Getpid(), os.Getpid(), 1 << 30})
	if len(list) == 0 || left != 0 {
		t.Fatal(list, left)
	}
	var st unix.Statfs_t
	for _, f := range list {
		if f.SizeBytes == 0 || f.FreeBytes > f.SizeBytes || f.FreeInodes > f.Inodes || f.PID != os.Getpid() || f.MountNS == 0 {
			t.Errorf("%+v", f)
		}
		if f.Dir != "/dev/shm" {
			continue
		}
		if err := unix.Statfs(f.Dir, &st); err == nil && f.SizeBytes != st.Blocks*uint64(st.Bsize) {
			t.Errorf("%+v, want %d bytes", f, st.Blocks*uint64(st.Bsize))
		}
	}
}
