package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupRoot is where control groups are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchies are the directories below which groups are made: one in version 2; one for
// each controller in version 1, and the version 2 next to them that runc enters, too.
func hierarchies() ([]string, error) {
	if isGroup(cgroupRoot) {
		return []string{cgroupRoot}, nil
	}
	var list []string
	entries, err := os.ReadDir(cgroupRoot)
	for _, e := range entries {
		if dir := filepath.Join(cgroupRoot, e.Name()); e.IsDir() && isGroup(dir) {
			list = append(list, dir)
		}
	}
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("no control groups in %s", cgroupRoot)
	}
	return list, err
}

func isGroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	return err == nil
}

// makeGroups makes the node's control group, and below it one that the calling process
// enters with all that it starts. Pods get theirs next to that one.
func makeGroups(name string) error {
	list, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range list {
		for _, dir := range []string{filepath.Join(h, name), filepath.Join(h, name, "system")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			// A cpuset of version 1 is empty at first, and takes no process then.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file)); err == nil {
					if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
						return err
					}
				}
			}
		}
		if err := os.WriteFile(filepath.Join(h, name, "system", "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// leaveGroups takes the calling process out of what makeGroups made, to where nothing limits
// it: it is about to end.
func leaveGroups() error {
	list, err := hierarchies()
	for _, h := range list {
		err = errors.Join(err, os.WriteFile(filepath.Join(h, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644))
	}
	return err
}

// members are the processes in a group and in those below it, in any hierarchy.
func members(group string) []int {
	seen := map[int]bool{}
	list, err := hierarchies()
	if err != nil {
		return nil
	}
	for _, h := range list {
		filepath.WalkDir(filepath.Join(h, group), func(path string, d fs.DirEntry, err error) error { // groups end meanwhile
			if err != nil || !d.IsDir() {
				return nil
			}
			text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err != nil {
				return nil
			}
			for line := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(line); err == nil && pid != os.Getpid() {
					seen[pid] = true
				}
			}
			return nil
		})
	}
	var pids []int
	for pid := range seen {
		pids = append(pids, pid)
	}
	return pids
}

// endGroup asks all processes of a group to end, kills those that have not after grace, and
// waits until there is none.
func endGroup(group string, grace time.Duration) error {
	signal := syscall.SIGTERM
	if grace == 0 {
		signal = syscall.SIGKILL
	}
	began := time.Now()
	var told map[int]bool
	for {
		pids := members(group)
		if len(pids) == 0 {
			return nil
		}
		if signal == syscall.SIGTERM && time.Since(began) > grace {
			signal, told = syscall.SIGKILL, nil
		}
		if time.Since(began) > grace+20*time.Second {
			return fmt.Errorf("processes %v of the group %s do not end", pids, group)
		}
		if told == nil {
			told = map[int]bool{}
		}
		for _, pid := range pids {
			if !told[pid] || signal == syscall.SIGKILL {
				syscall.Kill(pid, signal) // it may have ended
				told[pid] = true
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// removeGroups removes a group that nothing runs in, and those below it.
func removeGroups(group string) error {
	list, err := hierarchies()
	if err != nil {
		return err
	}
	var all error
	for _, h := range list {
		var dirs []string
		filepath.WalkDir(filepath.Join(h, group), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			all = errors.Join(all, removeGroup(dirs[i]))
		}
	}
	return all
}

// removeGroup removes one group. The kernel says that it is busy for a moment after its last
// process has ended.
func removeGroup(dir string) error {
	var err error
	for range 100 {
		if err = syscall.Rmdir(dir); err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("remove %s: %w", dir, err)
}
