package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// unified is where control groups of version 2 are mounted.
func unified(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.Contains(line, " - cgroup2 ") && f[3] == "/" {
			return f[4]
		}
	}
	t.Skip("SKIPPED FOR WANT OF A MOUNT: no control groups of version 2")
	return ""
}

// group makes a control group, which says which devices may be opened where devices
// is set, and puts a process into it.
func group(t *testing.T, pid int, devices bool) (path string) {
	t.Helper()
	mount := unified(t)
	path = "/slowray-test-" + strconv.Itoa(pid)
	dir := filepath.Join(mount, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(mount, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if devices {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
		if err != nil {
			t.Skipf("SKIPPED FOR WANT OF RIGHTS: %v", err)
		}
		defer prog.Close()
		l, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: ebpf.AttachCGroupDevice, Program: prog})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTestIsConfined: what is run in a container may open the devices that the
// container may, and not those of the host.
func TestTestIsConfined(t *testing.T) {
	for name, devices := range map[string]bool{"its group says which devices": true, "its group says nothing of devices": false} {
		t.Run(name, func(t *testing.T) {
			r := startRogueBy(t, "nginx", "", syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}, Unshareflags: syscall.CLONE_NEWNS})
			ready(t, "nginx", r.pid)
			path := group(t, r.pid, devices)
			r.during(t, "cat /proc/self/cgroup > $(dirname $dir)/group")
			if _, err := (files{}).Prepare(r.change()); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(r.Dir, "group"))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(b), "0::"+path+"\n"); got != devices {
				t.Errorf("its test is in %s, and the server in %s", b, path)
			}
		})
	}
}
