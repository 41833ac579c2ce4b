package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/snapshot"
)

// inside is what of a sandbox slowray may change: its namespaces, processes,
// control groups and configuration files.
type inside struct {
	snapshot.Scope
	starts map[int]string // when each process began
}

// look finds what there is in a sandbox.
func look(ctx context.Context, b *sandbox.Box) (inside, error) {
	in := inside{starts: map[int]string{}}
	spaces := map[uint64]bool{}
	for _, side := range []*sandbox.Side{b.Server, b.Client, b.Backend} {
		if side == nil {
			continue
		}
		inode, err := side.NetNS(ctx)
		if err != nil {
			return in, err
		}
		spaces[inode] = true
	}
	home, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", b.PID()))
	for _, pid := range processes() {
		dir := fmt.Sprintf("/proc/%d", pid)
		if ns, err := os.Readlink(dir + "/ns/pid"); err != nil || ns != home {
			continue
		}
		in.PIDs = append(in.PIDs, pid)
		in.starts[pid] = startOf(pid)
		var inode uint64
		if link, err := os.Readlink(dir + "/ns/net"); err == nil {
			fmt.Sscanf(link, "net:[%d]", &inode)
		}
		if spaces[inode] {
			in.Namespaces = append(in.Namespaces, pid)
			delete(spaces, inode)
		}
		in.addGroups(dir)
	}
	in.addFiles(b.Dir)
	return in, nil
}

// processes lists all processes of the host.
func processes() []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// startOf is when a process began (proc_pid_stat(5), field 22); empty when it has
// ended.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" {
		return ""
	}
	return f[19]
}

// addGroups adds the control groups of a process, but for those of all.
func (in *inside) addGroups(proc string) {
	member, _ := os.ReadFile(proc + "/cgroup")
	for line := range strings.Lines(string(member)) {
		p := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(p) != 3 || p[2] == "/" {
			continue
		}
		roots := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
		if p[1] != "" {
			roots = []string{"/sys/fs/cgroup/" + p[1]}
		}
		for _, root := range roots {
			dir := filepath.Join(root, p[2])
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil && !slices.Contains(in.Cgroups, dir) && strings.Contains(dir, "slowray-lab") {
				in.Cgroups = append(in.Cgroups, dir)
			}
		}
	}
}

// configFile matches names of files that servers read at their start.
var configFile = regexp.MustCompile(`\.(conf|cfg|cnf|ini)$`)

func (in *inside) addFiles(dir string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && configFile.MatchString(path) {
			in.Paths = append(in.Paths, path)
		}
		return nil
	})
}

// left tells what is not as it was before, of what is still there: servers that
// read their configuration anew have other workers.
func (in *inside) left(ctx context.Context, before *snapshot.Snapshot) ([]string, error) {
	var ended []int
	for pid, start := range in.starts {
		if startOf(pid) != start {
			ended = append(ended, pid)
		}
	}
	scope := in.Scope
	scope.PIDs = slices.DeleteFunc(slices.Clone(scope.PIDs), func(pid int) bool { return slices.Contains(ended, pid) })
	after, err := snapshot.Take(ctx, scope)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(snapshot.Diff(before, after), func(line string) bool {
		// Pipes and unix sockets come and go with what a server does.
		comes := strings.HasSuffix(line, "is gone") || strings.Contains(line, ": is new: ")
		return comes && (strings.Contains(line, " pipe:[") || strings.Contains(line, "backlog unix")) ||
			slices.ContainsFunc(ended, func(pid int) bool { return strings.HasPrefix(line, fmt.Sprintf("process %d ", pid)) })
	}), nil
}
