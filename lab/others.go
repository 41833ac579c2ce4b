package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// userHz is the unit of CPU times in /proc (USER_HZ), which is the same on
// every architecture Go runs on.
const userHz = 100

// cpuTimes is the CPU seconds of one process and of the children it has
// waited for.
type cpuTimes struct{ own, children float64 }

// otherProcesses is the CPU times, by pid, of all processes of the host but
// this one and those it started, as slowray, and those in the process
// namespaces of these inits (proc_pid_stat(5)). Kernel threads are left out: the
// network's work for whoever has traffic, which is the sandbox, is theirs.
func otherProcesses(inits ...int) map[string]cpuTimes {
	inside := map[string]bool{}
	for _, init := range inits {
		if ns, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(init), "ns/pid")); err == nil {
			inside[ns] = true
		}
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	self := strconv.Itoa(os.Getpid())
	found := map[string]cpuTimes{}
	for _, path := range stats {
		dir := filepath.Dir(path)
		pid := filepath.Base(dir)
		data, err := os.ReadFile(path)
		if err != nil || pid == self {
			continue // it ended meanwhile
		}
		const kthreadd = "2"
		t, parent := parseCPUTimes(data)
		if parent == kthreadd || pid == kthreadd || parent == self {
			continue
		}
		if ns, err := os.Readlink(filepath.Join(dir, "ns/pid")); err != nil || inside[ns] {
			continue
		}
		found[pid] = t
	}
	return found
}

func parseCPUTimes(stat []byte) (t cpuTimes, parent string) {
	// The name in parentheses may hold anything. After it: state, ppid, …,
	// and utime, stime, cutime, cstime as fields 11 to 14.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 15 {
		return t, ""
	}
	var n [4]float64
	for i := range n {
		n[i], _ = strconv.ParseFloat(f[11+i], 64)
	}
	return cpuTimes{own: (n[0] + n[1]) / userHz, children: (n[2] + n[3]) / userHz}, f[1]
}

// usedBetween is the CPU seconds that processes used between two looks. What a
// process that ended had used before the first look is in the second one as a
// parent's children time, and is taken off.
func usedBetween(before, after map[string]cpuTimes) float64 {
	running, ended := 0.0, 0.0
	for pid, now := range after {
		was := before[pid]
		running += max(0, now.own-was.own)
		ended += max(0, now.children-was.children)
	}
	for pid, was := range before {
		if _, ok := after[pid]; !ok {
			ended -= was.own + was.children
		}
	}
	return running + max(0, ended)
}
