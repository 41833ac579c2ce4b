package change

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Confinement opens the control group of a process, where that is another one than
// slowray's: a program that is run as the process belongs there too, for the group
// says how much of the host it may use and, as with a container, which devices it may
// open. dir is the process's directory in /proc. -1: there is none. An error says that
// devices are confined, or may be, by a group that cannot be entered.
func Confinement(dir string) (int, error) {
	ours, theirs := groupsOf("/proc/self"), groupsOf(dir)
	if theirs == nil {
		return -1, errors.New("its control groups cannot be read")
	}
	if path := theirs["devices"]; path != ours["devices"] && !allDevices(path) {
		return -1, fmt.Errorf("control group %s, of version 1, says which devices it may open", path)
	}
	path := theirs[""]
	if path == ours[""] {
		return -1, nil
	}
	for _, m := range groupMounts() {
		rel, inside := below(path, m.root)
		if !m.unified || !inside || strings.Contains(path, "..") {
			continue
		}
		fd, err := openGroup(m.dir, rel)
		if err != nil {
			return -1, fmt.Errorf("control group %s: %w", path, err)
		}
		if err := unix.Faccessat(fd, "cgroup.procs", unix.W_OK, 0); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("control group %s: %w", path, err)
		}
		return fd, nil
	}
	return -1, fmt.Errorf("control group %s is not to be seen from here", path)
}

// allDevices says that a group of version 1 leaves all devices open (devices.list,
// Documentation/admin-guide/cgroup-v1/devices.rst).
func allDevices(path string) bool {
	mount, group, err := findGroup(path, "devices.list")
	if err != nil {
		return false
	}
	dir, err := openGroup(mount, group)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	f, err := (&cgroupState{File: "devices.list"}).openFile(dir, unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return err == nil && strings.TrimSpace(string(text)) == "a *:* rwm"
}

// groupsOf is the control groups of a process, by controller; "" is that of
// version 2 (cgroups(7), /proc/PID/cgroup).
func groupsOf(dir string) map[string]string {
	b, err := os.ReadFile(dir + "/cgroup")
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			for name := range strings.SplitSeq(f[1], ",") {
				out[name] = f[2]
			}
		}
	}
	return out
}
