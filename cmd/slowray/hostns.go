package main

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// kthreadd is the parent of the kernel's threads, which are in the host's namespaces. A
// container sees it only where it shares the host's process IDs.
const kthreadd = "/proc/2"

// joinHost moves a slowray in a container that shares the host's process IDs, as the pod
// of a DaemonSet does, into the host's control group and UTS namespaces: from its own it
// would see neither the root of the control groups nor the host's name. Where that is
// refused it stays where it is, and says in its report what it could not read.
func joinHost() {
	comm, err := os.ReadFile(kthreadd + "/comm")
	if err != nil || string(comm) != "kthreadd\n" {
		return
	}
	// A UTS namespace alone makes no container. On control groups v1 a pod has no other.
	pod := os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	if !pod && sameNamespace("cgroup") {
		return
	}
	program, err := os.Executable()
	if err != nil {
		return
	}
	// A thread joins; by exec(2) it becomes the whole process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	joined := false
	for name, kind := range map[string]int{"cgroup": unix.CLONE_NEWCGROUP, "uts": unix.CLONE_NEWUTS} {
		if sameNamespace(name) {
			continue
		}
		fd, err := unix.Open(kthreadd+"/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		joined = unix.Setns(fd, kind) == nil || joined
		_ = unix.Close(fd)
	}
	if joined {
		_ = syscall.Exec(program, os.Args, os.Environ())
	}
}

// sameNamespace says that this thread is in the host's, or that it cannot be told.
func sameNamespace(name string) bool {
	theirs, err := os.Readlink(kthreadd + "/ns/" + name)
	if err != nil {
		return true
	}
	ours, err := os.Readlink("/proc/thread-self/ns/" + name)
	return err != nil || ours == theirs
}
