package sandbox

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInitThatEnds: a sandbox whose init ends before it answers is an error that says
// what init said, and not something to wait for.
func TestInitThatEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a sandbox needs root")
	}
	for name, script := range map[string]string{
		"at once":       "echo cannot start >&2; exit 1",
		"after a while": "sleep 0.3; echo cannot start >&2; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			exe := filepath.Join(t.TempDir(), "init")
			if err := os.WriteFile(exe, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			lock, err := Acquire(t.Context(), func(s string) { t.Log(s) })
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Release()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			b, err := Open(ctx, lock, Options{Executable: exe, ServerAddr: "10.9.8.1/30", ClientAddr: "10.9.8.2/30", Lifetime: time.Minute})
			if err == nil {
				b.Close()
				t.Fatal("a sandbox without an init")
			}
			if !strings.Contains(err.Error(), "cannot start") {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("that took %v", took)
			}
		})
	}
}

// TestInPlainDirectory runs the sandbox where / is no mount point: in a chroot into a
// directory. What it mounts must not come to be mounted in what it was started from,
// though that shares its mounts as systemd has it.
func TestInPlainDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a sandbox needs root")
	}
	if _, err := os.Lstat("/usr/bin/ip"); err != nil {
		t.Skipf("SKIPPED: %v: the sandbox is NOT tried in a chroot", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = `set -e
mount --make-rshared /
cd "$1"
mkdir usr proc dev sys tmp run etc
for link in bin sbin lib lib64; do [ ! -L /$link ] || cp -P /$link .; done
mount --bind /usr usr
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
cp "$2" self.test
cat /proc/self/mountinfo >tmp/before
chroot . /self.test -test.v -test.run '^(TestTwoNamespacesJoined|TestMountedIsNotRemoved)$'
diff tmp/before /proc/self/mountinfo`
	root := t.TempDir()
	out, err := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", root, exe).CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
