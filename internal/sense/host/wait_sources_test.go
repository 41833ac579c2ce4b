package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestQueues: bytes that nobody reads lie in both queues, and the kernel knows
// since when.
func TestQueues(t *testing.T) {
	n := privateNetNS(t)
	port := listen(t, n, unix.AF_INET, 5)
	client := connect(t, n, port, 1)[0]
	if _, err := unix.Write(client, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(60 * time.Millisecond)
	var server, own QueueSample
	var listener QueueSample
	err := n.Queues(func(q *QueueSample) {
		switch {
		case q.State == "LISTEN":
			listener = *q
		case int(q.SrcPort) == port:
			server = *q
		case int(q.DstPort) == port:
			own = *q
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if listener.Receive != 1 || listener.Send != 5 || listener.InfoKnown {
		t.Errorf("listener: %+v", listener)
	}
	if server.Receive != 1000 || server.Inode != 0 || !server.InfoKnown || server.LastReceived < 50*time.Millisecond || server.LastReceived > 10*time.Second {
		t.Errorf("server: %+v", server)
	}
	if own.Inode == 0 || own.Send != 0 || own.LastSent < 50*time.Millisecond || own.Unanswered != 0 {
		t.Errorf("client: %+v", own)
	}
}

// TestUnixSockets: both ends of a pair know each other, and a listener knows
// who waits for it.
func TestUnixSockets(t *testing.T) {
	n := privateNetNS(t)
	path := filepath.Join(t.TempDir(), "s")
	var fds []int
	inode := map[string]uint64{}
	err := n.Do(func() error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		fds = append(fds, pair[0], pair[1])
		if _, err := unix.Write(pair[0], []byte("12345")); err != nil {
			return err
		}
		for _, name := range []string{"listener", "client"} {
			s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			fds = append(fds, s)
			if inode[name], err = inodeOf(s); err != nil {
				return err
			}
		}
		if err := unix.Bind(fds[2], &unix.SockaddrUnix{Name: path}); err != nil {
			return err
		}
		if err := unix.Listen(fds[2], 3); err != nil {
			return err
		}
		return unix.Connect(fds[3], &unix.SockaddrUnix{Name: path})
	})
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := inodeOf(fds[0])
	second, _ := inodeOf(fds[1])
	all, err := n.UnixSockets()
	if err != nil {
		t.Fatal(err)
	}
	by := map[uint64]UnixSample{}
	for _, u := range all {
		by[u.Inode] = u
	}
	if a, b := by[first], by[second]; a.Peer != second || b.Peer != first || !a.Connected || b.Receive != 5 || a.Send == 0 {
		t.Errorf("pair: %+v %+v", a, b)
	}
	l := by[inode["listener"]]
	if !l.Listening || l.Name != path || l.Receive != 1 || l.Send != 3 || !cmp.Equal(l.Pending, []uint64{inode["client"]}) || l.FileInode == 0 {
		t.Errorf("listener: %+v", l)
	}
	if c := by[inode["client"]]; c.Peer != 0 || !c.Connected || c.Listening {
		t.Errorf("client: %+v", c)
	}
}

func TestParseQueuesAndPeersOfAnything(t *testing.T) {
	var q QueueSample
	for n := range 200 {
		b := make([]byte, n)
		if n > 0 {
			b[0] = unix.AF_INET
		}
		parseQueues(b, &q)
		if n > 0 {
			b[0] = unix.AF_UNIX
		}
		parseUnixSocket(b)
	}
}

// TestFrozenOfFixture: the outermost group that was frozen itself is named, in
// either version.
func TestFrozenOfFixture(t *testing.T) {
	for _, c := range []struct {
		name, group, mount string
		files              map[string]string
		want               string
	}{
		{"v2", "0::/a/b", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", map[string]string{
			"fs/cgroup/a/cgroup.freeze": "1\n", "fs/cgroup/a/b/cgroup.freeze": "0\n"}, "fs/cgroup/a/cgroup.freeze"},
		{"v2 thawed", "0::/a/b", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", map[string]string{
			"fs/cgroup/a/cgroup.freeze": "0\n", "fs/cgroup/a/b/cgroup.freeze": "0\n"}, ""},
		{"v1", "6:freezer:/a/b", "31 1 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer", map[string]string{
			"fs/cgroup/freezer/a/freezer.state": "FROZEN\n", "fs/cgroup/freezer/a/freezer.self_freezing": "1\n",
			"fs/cgroup/freezer/a/b/freezer.state": "FROZEN\n", "fs/cgroup/freezer/a/b/freezer.self_freezing": "0\n"}, "fs/cgroup/freezer/a/freezer.state"},
		{"no such mount", "6:freezer:/a", "22 1 0:21 / /proc rw - proc proc rw", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			fs := FS{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys")}
			put(t, filepath.Join(fs.Proc, "7/cgroup"), c.group+"\n")
			put(t, filepath.Join(fs.Proc, "self/mountinfo"), c.mount+"\n")
			for name, content := range c.files {
				put(t, filepath.Join(fs.Sys, name), content)
			}
			want := ""
			if c.want != "" {
				want = filepath.Join(fs.Sys, c.want)
			}
			if got, frozen := fs.Frozen(7); got != want || frozen != (want != "") {
				t.Errorf("%q %v, want %q", got, frozen, want)
			}
		})
	}
	if file, frozen := Default().Frozen(os.Getpid()); frozen {
		t.Error("this process is frozen by", file)
	}
}

func TestMountOf(t *testing.T) {
	fs := FS{Proc: t.TempDir()}
	put(t, filepath.Join(fs.Proc, "7/mountinfo"), `22 1 0:21 / /proc rw - proc proc rw
41 22 254:16 / /data\040dir rw,relatime shared:1 - ext4 /dev/vdb1 rw,errors=remount-ro
nonsense
`)
	got, ok := fs.MountOf(7, 41)
	want := Mount{ID: 41, Options: "rw,relatime", Major: 254, Minor: 16, Root: "/", Dir: "/data dir", Type: "ext4", Source: "/dev/vdb1", Superblock: "rw,errors=remount-ro", Others: true} // whose namespaces cannot be seen
	if d := cmp.Diff(want, got); d != "" || !ok {
		t.Error(d)
	}
	if _, ok := fs.MountOf(7, 5); ok {
		t.Error("a mount that is not there")
	}
}
