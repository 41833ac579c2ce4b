package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// moving are sysctls that change by themselves: counters, and what the kernel
// tunes. Patterns of filepath.Match, below /proc/sys.
var moving = []string{
	"kernel/random/*", "kernel/ns_last_pid", "kernel/pty/nr", "kernel/tainted", "kernel/keys/*",
	"kernel/perf_event_max_sample_rate", // lowered by the kernel while interrupts are slow
	"fs/file-nr", "fs/inode-nr", "fs/inode-state", "fs/dentry-state", "fs/aio-nr", "fs/quota/*",
	"vm/stat_refresh", // reading it makes the kernel work
	"net/netfilter/nf_conntrack_count",
}

// sysctls reads all of a directory of /proc/sys, as this thread's namespace has them.
func (s *Snapshot) sysctls(name, root string) {
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // a device has gone meanwhile
		}
		below := strings.TrimPrefix(path, "/proc/sys/")
		if slices.ContainsFunc(moving, func(p string) bool { ok, _ := filepath.Match(p, below); return ok }) {
			return nil
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o444 == 0 {
			return nil // can only be written, as route/flush
		}
		if text, ok := read(path); ok {
			s.set(text, name, "sysctl", below)
		}
		return nil
	})
}

// sysfs reads the settings of /sys that changes of kind "file" are made to.
func (s *Snapshot) sysfs() {
	for _, pattern := range []string{
		"/sys/block/*/queue/scheduler", "/sys/block/*/queue/nr_requests", "/sys/block/*/queue/read_ahead_kb",
		"/sys/block/*/queue/wbt_lat_usec", "/sys/block/*/queue/rotational",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource",
		"/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
		"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/defrag",
		"/sys/kernel/mm/ksm/run",
	} {
		s.globbed("sysfs", pattern)
	}
}

// limitFiles are the files of a control group that set something, v2 and v1.
var limitFiles = []string{
	"cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle", "cpuset.cpus", "cpuset.mems", "memory.min", "memory.low", "memory.high",
	"memory.max", "memory.swap.max", "memory.swap.high", "io.max", "io.weight", "io.latency", "pids.max", "cgroup.freeze",
	"cgroup.subtree_control",
	"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.shares", "memory.limit_in_bytes", "memory.soft_limit_in_bytes",
	"memory.memsw.limit_in_bytes", "blkio.weight", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
	"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device", "freezer.state",
}

// cgroups reads the limits of a control group and those below it.
func (s *Snapshot) cgroups(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it ended meanwhile
		}
		if err != nil || !d.IsDir() {
			return err
		}
		for _, name := range limitFiles {
			if text, ok := read(filepath.Join(path, name)); ok {
				s.set(text, "cgroup", path, name)
			}
		}
		return nil
	})
}

// rlimits in the order of their numbers, setrlimit(2).
var rlimits = []string{"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as", "locks", "sigpending",
	"msgqueue", "nice", "rtprio", "rttime"}

// process reads what can be set of a process from outside.
func (s *Snapshot) process(pid int) {
	name := strconv.Itoa(pid)
	for n, what := range rlimits {
		var l unix.Rlimit
		if unix.Prlimit(pid, n, nil, &l) == nil {
			s.set(fmt.Sprintf("%d %d", int64(l.Cur), int64(l.Max)), "process", name, "rlimit", what)
		}
	}
	// Threads come and go: what they have is reported as a set.
	var cpus, nices []string
	threads, _ := filepath.Glob("/proc/" + name + "/task/*")
	for _, thread := range threads {
		tid, _ := strconv.Atoi(filepath.Base(thread))
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil {
			cpus = append(cpus, fmt.Sprintf("%x", set))
		}
		if nice, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil {
			nices = append(nices, strconv.Itoa(20-nice)) // the system call counts from 40 to 1
		}
	}
	if len(cpus) > 0 { // the process is there
		s.set(distinct(cpus), "process", name, "cpus")
		s.set(distinct(nices), "process", name, "nice")
	}
	s.pipes(name)
}

func distinct(list []string) string {
	slices.Sort(list)
	return strings.Join(slices.Compact(list), " ")
}

// pipes reads the capacities of the pipes that a process has open.
func (s *Snapshot) pipes(pid string) {
	fds, _ := filepath.Glob("/proc/" + pid + "/fd/*")
	for _, path := range fds {
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "pipe:") {
			continue
		}
		// For reading and writing: opening one end alone could wait for the other.
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil {
			s.set(strconv.Itoa(size), "process", pid, target)
		}
		unix.Close(fd)
	}
}
