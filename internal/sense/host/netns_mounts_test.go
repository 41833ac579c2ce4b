package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/osthread"
)

// A namespace that no process lives in is found by its mount: where slowray sees it,
// and where only another process does.
func TestNetNSMounts(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "router")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pid, done := make(chan int), make(chan struct{})
	defer close(done)
	var inode uint64
	go osthread.Own(func() error { // its thread has mounts of its own, and ends with it
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
			pid <- 0
			return err
		}
		inode, _ = netNSLink("/proc/thread-self/ns/net")
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "")
		}
		if err == nil {
			err = unix.Unshare(unix.CLONE_NEWNET) // only the mount holds the first one now
		}
		if err != nil {
			pid <- 0
			return err
		}
		pid <- unix.Gettid()
		<-done
		return nil
	})
	tid := <-pid
	if tid == 0 {
		t.Skip("SKIPPED: cannot mount a network namespace")
	}
	fs := Default()
	found, left := fs.NetNSMounts(budget.New(context.Background(), budget.Limits{Bytes: 1 << 20, Nodes: 1 << 16}), []int{tid})
	m, ok := found[inode]
	if !ok || left != 0 {
		t.Fatalf("namespace %d is not among %v (%d left)", inode, found, left)
	}
	if m.PID != tid || m.Dir != file || m.Name() != "" {
		t.Errorf("found %+v, want it at %s of %d, without a name", m, file, tid)
	}
	ns, err := fs.OpenNetNSMount(m)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	inside := uint64(0)
	if err := ns.Do(func() (err error) {
		inside, err = netNSLink("/proc/thread-self/ns/net")
		return err
	}); err != nil || inside != inode {
		t.Errorf("inside %d (%v), want %d", inside, err, inode)
	}
	again, err := NetNSMountAt(m.Path(), inode)
	if err != nil || again != m {
		t.Errorf("%s leads to %+v (%v), want %+v", m.Path(), again, err, m)
	}
	m.Inode++
	if _, err := fs.OpenNetNSMount(m); err == nil {
		t.Error("another namespace is taken for the one that was meant")
	}
}

func TestNetNSMountName(t *testing.T) {
	for _, c := range []struct {
		mount NetNSMount
		name  string
		path  string
	}{
		{NetNSMount{Dir: "/run/netns/edge"}, "edge", "/run/netns/edge"},
		{NetNSMount{Dir: "/run/docker/netns/1a2b"}, "", "/run/docker/netns/1a2b"},
		{NetNSMount{Dir: "/run/netns/edge", PID: 7}, "", "/proc/7/root/run/netns/edge"},
	} {
		if got := c.mount.Name(); got != c.name {
			t.Errorf("%+v: name %q, want %q", c.mount, got, c.name)
		}
		if got := c.mount.Path(); got != c.path {
			t.Errorf("%+v: path %q, want %q", c.mount, got, c.path)
		}
	}
}
