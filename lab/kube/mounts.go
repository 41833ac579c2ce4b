package kube

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kernelSettings are what a kubelet sets, for the whole host, unless it finds them set
// (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables).
var kernelSettings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mounts gives this mount namespace, which is the node's own, the directories that a node
// writes: /run, /var/log and what it makes in /var/lib. dir is where they are in truth.
func mounts(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: private: %w", err)
	}
	over := filepath.Join(dir, "lib")
	for _, d := range []string{"run/containerd", "log", "lib/up", "lib/work", "kubelet", "containerd", "settings"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", "/var/lib", "overlay", 0, fmt.Sprintf("lowerdir=/var/lib,upperdir=%s/up,workdir=%[1]s/work", over)); err != nil {
		return fmt.Errorf("mounts: overlay on /var/lib: %w", err)
	}
	// A kubelet wants to know which disk these are on: they are none of an overlay.
	binds := map[string]string{"kubelet": "/var/lib/kubelet", "containerd": "/var/lib/containerd", "log": "/var/log", "run": "/run"}
	for from, to := range binds {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(filepath.Join(dir, from), to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounts: %s: %w", to, err)
		}
	}
	for name, value := range kernelSettings {
		file := filepath.Join(dir, "settings", filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounts: %s: %w", name, err)
		}
	}
	// Kubelet and containerd pass mounts on to containers, in here only.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// unmount takes back what mounts has done, with all that others mounted below: the kernel
// does not remove directories that something is mounted on in the same namespace.
func unmount() error {
	for _, dir := range []string{"/var/lib", "/var/log", "/run"} {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	return nil
}
