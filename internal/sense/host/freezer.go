package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Frozen is the file that thaws the control group of a process, when that group
// is frozen: cgroup.freeze of version 2 (Documentation/admin-guide/cgroup-v2.rst),
// freezer.state of version 1 (cgroup-v1/freezer-subsystem.rst). Of nested
// groups it is the outermost that was frozen itself. False when the process
// runs or that cannot be read.
func (fs FS) Frozen(pid int) (file string, frozen bool) {
	groups, err := os.ReadFile(fmt.Sprintf("%s/%d/cgroup", fs.Proc, pid))
	if err != nil {
		return "", false
	}
	v2, v1 := parseProcCgroup(groups).V2, freezerGroup(groups)
	mountinfo, err := os.ReadFile(filepath.Join(fs.Proc, "self/mountinfo"))
	if err != nil {
		return "", false
	}
	mounts, _ := parseMountinfo(bytes.NewReader(mountinfo))
	for _, g := range lineage(fs.underSys(mounts.v2), v2) {
		if readWord(filepath.Join(g.dir, "cgroup.freeze")) == "1" {
			file, frozen = filepath.Join(g.dir, "cgroup.freeze"), true
		}
	}
	if frozen {
		return file, true
	}
	for _, g := range lineage(fs.underSys(freezerMounts(mountinfo)), v1) {
		// A group below a frozen one says FROZEN too, but not of itself.
		if readWord(filepath.Join(g.dir, "freezer.self_freezing")) == "1" && readWord(filepath.Join(g.dir, "freezer.state")) != "THAWED" {
			file, frozen = filepath.Join(g.dir, "freezer.state"), true
		}
	}
	return file, frozen
}

// underSys looks for what is mounted below /sys below fs.Sys.
func (fs FS) underSys(mounts []cgroupMount) []cgroupMount {
	for i := range mounts {
		if rest, ok := strings.CutPrefix(mounts[i].dir, "/sys/"); ok {
			mounts[i].dir = filepath.Join(fs.Sys, rest)
		}
	}
	return mounts
}

// freezerGroup is the path of the version 1 controller freezer in
// /proc/PID/cgroup (cgroups(7)), empty when there is none.
func freezerGroup(b []byte) string {
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		_, rest, _ := bytes.Cut(line, []byte(":"))
		controllers, path, ok := bytes.Cut(rest, []byte(":"))
		if ok && slices.Contains(strings.Split(string(controllers), ","), "freezer") {
			return string(path)
		}
	}
	return ""
}

// freezerMounts is where the version 1 controller freezer is mounted.
func freezerMounts(mountinfo []byte) []cgroupMount {
	var out []cgroupMount
	for len(mountinfo) > 0 {
		var line []byte
		line, mountinfo = nextLine(mountinfo)
		head, tail, _ := strings.Cut(string(line), " - ")
		fields, types := strings.Fields(head), strings.Fields(tail)
		if len(fields) < 6 || len(types) < 2 || types[0] != "cgroup" || !slices.Contains(strings.Split(types[len(types)-1], ","), "freezer") {
			continue
		}
		out = append(out, cgroupMount{dir: unescapeMount(fields[4]), root: pathParts(unescapeMount(fields[3]))})
	}
	return out
}

// readWord reads a file of one word, empty when it cannot be read.
func readWord(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
