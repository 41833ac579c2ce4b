package doctor

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Rights is what this process may do.
type Rights struct {
	UID   int       `json:"uid"`
	Lacks []Lacking `json:"lacks"`
}

// Lacking is a capability that this process does not have.
type Lacking struct {
	Capability string `json:"capability"`
	Lost       string `json:"lost"`
}

// needed are the capabilities that slowray makes use of (capabilities(7)).
var needed = []struct {
	number     int
	name, lost string
}{
	{unix.CAP_BPF, "CAP_BPF", "all programs in the kernel: requests, connections, samples, stacks"},
	{unix.CAP_PERFMON, "CAP_PERFMON", "tracing programs: requests, samples, stacks, functions"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "programs that look at packets and sockets, and rules of the firewall"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "open files, memory and waits of processes of other users"},
	{unix.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "configuration and logs of servers that only root may read"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "network namespaces of containers, and probes in programs"},
	{unix.CAP_SYSLOG, "CAP_SYSLOG", "the kernel log, and names of kernel functions"},
}

// rights reads this process's effective capabilities. CAP_SYS_ADMIN stands for
// CAP_BPF, CAP_PERFMON and, in most kernels, CAP_SYSLOG.
func rights() Rights {
	r := Rights{UID: os.Geteuid(), Lacks: []Lacking{}}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return r // not known: what is tried tells
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	for _, n := range needed {
		stands := (n.number == unix.CAP_BPF || n.number == unix.CAP_PERFMON || n.number == unix.CAP_SYSLOG) && has(unix.CAP_SYS_ADMIN)
		if !has(n.number) && !stands {
			r.Lacks = append(r.Lacks, Lacking{n.name, n.lost})
		}
	}
	return r
}

// ownCPU is the CPU time that this process has used.
func ownCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
