package host

import (
	"bytes"
	"strings"

	"github.com/slowray/slowray/internal/printable"
)

// ProcGroups is where a process sits in the hierarchies that matter here. A
// path is empty when the process has no group in that hierarchy. Paths are
// relative to the root of our own cgroup namespace: "/../other" lies outside.
type ProcGroups struct {
	V2      string // the unified hierarchy
	CPU     string // v1 controller cpu
	Memory  string // v1 controller memory
	PIDs    string // v1 controller pids
	BlkIO   string // v1 controller blkio
	CPUSet  string // v1 controller cpuset
	Systemd string // v1 named hierarchy name=systemd
}

// parseProcCgroup reads /proc/PID/cgroup (cgroups(7)): lines of
// hierarchy-ID:controllers:path, where the unified hierarchy is "0::".
func parseProcCgroup(b []byte) ProcGroups {
	var g ProcGroups
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		id, rest, ok := bytes.Cut(line, []byte(":"))
		controllers, path, ok2 := bytes.Cut(rest, []byte(":"))
		if !ok || !ok2 || len(path) == 0 || path[0] != '/' {
			continue
		}
		// A group that was removed while a process was still in it.
		name := strings.TrimSuffix(string(path), " (deleted)")
		if string(id) == "0" && len(controllers) == 0 {
			g.V2 = name
			continue
		}
		for c := range strings.SplitSeq(string(controllers), ",") {
			switch c {
			case "cpu":
				g.CPU = name
			case "memory":
				g.Memory = name
			case "pids":
				g.PIDs = name
			case "blkio":
				g.BlkIO = name
			case "cpuset":
				g.CPUSet = name
			case "name=systemd":
				g.Systemd = name
			}
		}
	}
	return g
}

// groupNames is what the groups of a process say about it.
type groupNames struct {
	groups                *ProcGroups
	path, container, unit string
}

// nameGroups picks the most telling path, v2 before v1 cpu before v1 memory
// before systemd, where the root tells nothing, and the container and unit of
// the first hierarchy that names one.
func nameGroups(g ProcGroups) groupNames {
	n := groupNames{groups: &g}
	for _, path := range []string{g.V2, g.CPU, g.Memory, g.Systemd} {
		if path != "" && (n.path == "" || n.path == "/") {
			n.path = path
		}
		if n.container == "" {
			n.container = ContainerOf(path)
		}
		if n.unit == "" {
			n.unit = UnitOf(path)
		}
	}
	n.path = printable.Name([]byte(n.path), 4096)
	n.container = printable.Name([]byte(n.container), 256)
	n.unit = printable.Name([]byte(n.unit), 256)
	return n
}
