package host

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A cgroupMount is one place where a hierarchy is mounted.
type cgroupMount struct {
	dir  string   // where it is mounted
	root []string // components of the group that is mounted there
}

// cgroupMounts is where the hierarchies that matter here are mounted.
type cgroupMounts struct{ v2, cpu, memory, pids, blkio, cpuset []cgroupMount }

// parseMountinfo finds the cgroup mounts in /proc/self/mountinfo
// (proc_pid_mountinfo(5)): "ID PARENT MAJOR:MINOR ROOT DIR OPTIONS [TAG…] -
// TYPE SOURCE SUPEROPTIONS". v1 controllers are named in the super options and
// may share a mount.
func parseMountinfo(r io.Reader) (cgroupMounts, error) {
	b, err := io.ReadAll(io.LimitReader(r, 16<<20))
	var m cgroupMounts
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		head, tail, ok := strings.Cut(string(line), " - ")
		fields, types := strings.Fields(head), strings.Fields(tail)
		if !ok || len(fields) < 6 || len(types) < 1 {
			continue
		}
		mount := cgroupMount{dir: unescapeMount(fields[4]), root: pathParts(unescapeMount(fields[3]))}
		switch types[0] {
		case "cgroup2":
			m.v2 = append(m.v2, mount)
		case "cgroup":
			options := strings.Split(types[len(types)-1], ",")
			if slices.Contains(options, "cpu") {
				m.cpu = append(m.cpu, mount)
			}
			if slices.Contains(options, "memory") {
				m.memory = append(m.memory, mount)
			}
			if slices.Contains(options, "pids") {
				m.pids = append(m.pids, mount)
			}
			if slices.Contains(options, "blkio") {
				m.blkio = append(m.blkio, mount)
			}
			if slices.Contains(options, "cpuset") {
				m.cpuset = append(m.cpuset, mount)
			}
		}
	}
	return m, err
}

// CgroupV2Root is where the root of the unified hierarchy is mounted; on a host
// of version 1 or mixed it has no controllers, and yet all processes.
func (fs FS) CgroupV2Root() (string, error) {
	f, err := os.Open(filepath.Join(fs.Proc, "self/mountinfo"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	mounts, err := parseMountinfo(f)
	if err != nil {
		return "", err
	}
	for _, m := range mounts.v2 {
		if len(m.root) == 0 {
			return m.dir, nil
		}
	}
	return "", errors.New("the unified control group hierarchy (cgroup2) is not mounted")
}

// unescapeMount undoes the octal escapes of mountinfo (mangle, fs/seq_file.c).
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}

// pathParts is the components of a path, empty for "/".
func pathParts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// A groupDir is a directory of one group, and the path it goes by.
type groupDir struct{ path, dir string }

// lineage is the directories of a group and of its ancestors, down from the
// group, as far up as they are mounted. Both the path and the mounted root are
// relative to our cgroup namespace, and may lead out of it with "..": the group
// lies in a mount when the root's components begin the path's. nil when no
// mount holds it.
func lineage(mounts []cgroupMount, path string) []groupDir {
	parts := pathParts(path)
	var best *cgroupMount
	for i := range mounts {
		root := mounts[i].root
		inside := len(parts) >= len(root) && slices.Equal(parts[:len(root)], root) &&
			!slices.Contains(parts[len(root):], "..")
		if inside && (best == nil || len(root) < len(best.root)) {
			best = &mounts[i]
		}
	}
	if path == "" || best == nil {
		return nil
	}
	var dirs []groupDir
	for n := len(parts); n >= len(best.root); n-- {
		dirs = append(dirs, groupDir{
			path: "/" + strings.Join(parts[:n], "/"),
			dir:  filepath.Join(best.dir, filepath.Join(parts[len(best.root):n]...)),
		})
	}
	return dirs
}
