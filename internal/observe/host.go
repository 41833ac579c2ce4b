package observe

import "cmp"

// HostUse is how the machine's resources were used over the window.
type HostUse struct {
	CPU      CPUTime             `json:"cpu"` // all CPUs together
	PerCPU   []CPUTime           `json:"per_cpu,omitempty"`
	Course   []CPUSpan           `json:"cpu_course,omitempty"` // without gaps, in order of time
	Softnet  []Softnet           `json:"softnet,omitempty"`
	Memory   Memory              `json:"memory"`
	VM       map[string]uint64   `json:"vm,omitempty"` // /proc/vmstat, increases: "pgmajfault", "allocstall_normal"…
	Disks    []Disk              `json:"disks,omitempty"`
	Pressure map[string]Pressure `json:"pressure,omitempty"` // "cpu", "memory", "io"
	Forks    uint64              `json:"forks"`              // /proc/stat processes: threads are counted too
	// SoftIRQs counts the runs of each vector by CPU number, from
	// /proc/softirqs: "NET_RX", "TIMER"…
	SoftIRQs map[string][]uint64 `json:"softirqs,omitempty"`
	// Flows are the packets that came in, most first: only where packet
	// processing took a good part of a CPU, and for some moments of it.
	Flows []Flow `json:"flows,omitempty"`
}

// CPUTime is CPU seconds by mode, from /proc/stat (proc_stat(5)). Guest time
// is contained in User and Nice, as in the kernel.
type CPUTime struct {
	User    float64 `json:"user"`
	Nice    float64 `json:"nice"`
	System  float64 `json:"system"`
	Idle    float64 `json:"idle"`
	IOWait  float64 `json:"iowait"`
	IRQ     float64 `json:"irq"`
	SoftIRQ float64 `json:"softirq"`
	Steal   float64 `json:"steal"`
}

// Total is the CPU seconds of all modes together.
func (c CPUTime) Total() float64 {
	return c.User + c.Nice + c.System + c.Idle + c.IOWait + c.IRQ + c.SoftIRQ + c.Steal
}

// Busy is the CPU seconds that were neither idle nor waiting for I/O.
func (c CPUTime) Busy() float64 { return c.Total() - c.Idle - c.IOWait }

// CPUSpan is how all CPUs together were used in a part of the window, which
// ends Seconds after the window's beginning and begins where the one before it
// ends.
type CPUSpan struct {
	Seconds float64 `json:"s"`
	Busy    float64 `json:"busy"` // CPU seconds
	Idle    float64 `json:"idle"` // CPU seconds, waiting for I/O included
}

// Softnet is one CPU's packet backlog work, from /proc/net/softnet_stat
// (net/core/net-procfs.c): increases over the window.
type Softnet struct {
	CPU       int    `json:"cpu"`
	Processed uint64 `json:"processed"`
	Dropped   uint64 `json:"dropped"`  // backlog longer than netdev_max_backlog
	Squeezed  uint64 `json:"squeezed"` // budget or time used up with work left
}

// Memory is /proc/meminfo at the end of the window.
type Memory struct {
	TotalBytes     uint64 `json:"total_bytes"`
	AvailableBytes uint64 `json:"available_bytes"`
	SwapTotalBytes uint64 `json:"swap_total_bytes"`
	SwapFreeBytes  uint64 `json:"swap_free_bytes"`
	DirtyBytes     uint64 `json:"dirty_bytes,omitempty"`     // written and not yet on a disk
	WritebackBytes uint64 `json:"writeback_bytes,omitempty"` // on their way there
	SlabBytes      uint64 `json:"slab_bytes,omitempty"`      // the kernel's own objects
	SlabKeptBytes  uint64 `json:"slab_kept_bytes,omitempty"` // of them, what cannot be freed (SUnreclaim)
	CommitLimit    uint64 `json:"commit_limit_bytes,omitempty"`
	Committed      uint64 `json:"committed_bytes,omitempty"` // promised to processes
}

// Disk is one whole block device over the window, from /proc/diskstats
// (Documentation/admin-guide/iostats.rst). Partitions are left out.
type Disk struct {
	Name         string  `json:"name"`
	Number       string  `json:"number,omitempty"` // "major:minor"
	Reads        uint64  `json:"reads"`
	Writes       uint64  `json:"writes"`
	ReadBytes    uint64  `json:"read_bytes"`
	WriteBytes   uint64  `json:"write_bytes"`
	ReadSeconds  float64 `json:"read_seconds"`  // sum over requests
	WriteSeconds float64 `json:"write_seconds"` // sum over requests
	BusySeconds  float64 `json:"busy_seconds"`  // wall time with I/O in flight
}

// Pressure is stall time over the window, from /proc/pressure
// (Documentation/accounting/psi.rst).
type Pressure struct {
	SomeSeconds float64 `json:"some_seconds"`
	FullSeconds float64 `json:"full_seconds"`
}

// Name is what a process is: the server that it executes, or what it is called.
func (p *Process) Name() string { return cmp.Or(p.Program, p.Comm) }

// Process is one process over the window. Processes that came or went inside
// the window are kept with what was seen of them.
type Process struct {
	PID       int    `json:"pid"`
	PPID      int    `json:"ppid"`
	Comm      string `json:"comm"`
	Program   string `json:"program,omitempty"` // the server that it executes, "redis-server", where Comm does not say so
	Cmdline   string `json:"cmdline,omitempty"` // arguments joined by spaces, *** for secrets (CommandLine), at most 512 bytes
	State     string `json:"state"`             // letter of proc_pid_stat(5) at the end
	Kernel    bool   `json:"kernel,omitempty"`  // a kernel thread (child of PID 2, or PID 2)
	Threads   int    `json:"threads"`
	NetNS     uint64 `json:"netns,omitempty"`
	Cgroup    string `json:"cgroup,omitempty"`    // most telling path: v2, else v1 cpu, else v1 memory, else systemd
	Container string `json:"container,omitempty"` // container id from the cgroup path, shortened to 12
	Unit      string `json:"unit,omitempty"`      // systemd unit from the cgroup path
	StartedIn bool   `json:"started_in_window,omitempty"`
	EndedIn   bool   `json:"ended_in_window,omitempty"`

	UserSeconds     float64 `json:"user_seconds"`
	SystemSeconds   float64 `json:"system_seconds"`
	RunDelaySeconds float64 `json:"run_delay_seconds"` // runnable but not running, all threads (/proc/PID/task/*/schedstat)
	Timeslices      uint64  `json:"timeslices"`
	MajorFaults     uint64  `json:"major_faults"`
	ReadBytes       uint64  `json:"read_bytes"`  // from storage, /proc/PID/io
	WriteBytes      uint64  `json:"write_bytes"` // to storage, /proc/PID/io
	Nice            int     `json:"nice,omitempty"`
	RSSBytes        uint64  `json:"rss_bytes"`

	// Maps is how many memory mappings it has: only of processes for which a
	// mapping failed.
	Maps int `json:"maps,omitempty"`
	// Writes is the largest file that it writes: of busy ones that serve.
	Writes []WrittenFile `json:"writes,omitempty"`
	// Stores is what the files lie on that it has open, as WaitMount.Store: of those that
	// moved most bytes.
	Stores []string `json:"stores,omitempty"`
	// TracerPID is the process that traces it with ptrace(2), of one that serves.
	TracerPID int `json:"tracer_pid,omitempty"`

	FDs     int `json:"fds,omitempty"`      // open files, peak of the samples
	FDLimit int `json:"fd_limit,omitempty"` // soft RLIMIT_NOFILE
	FDHard  int `json:"fd_hard,omitempty"`  // hard RLIMIT_NOFILE
	SockFDs int `json:"sock_fds,omitempty"` // open files that are sockets, at the end

	// ChildSeconds is the CPU time of children that ended in the window and
	// were waited for, and of theirs (cutime and cstime of proc_pid_stat(5)).
	ChildSeconds float64 `json:"child_seconds,omitempty"`
	// Busiest are the threads that ran or wanted to run most, at most 4, when
	// the process has several.
	Busiest []Thread `json:"busiest,omitempty"`

	// Policy is "fifo", "rr" or "deadline" of a process in real time
	// (sched(7)), which runs before all that is not, and "idle" of one that
	// runs when hardly anything else wants to.
	Policy string `json:"policy,omitempty"`
	// StartedAt is when it began, in seconds from the beginning of the window.
	StartedAt float64 `json:"started_at,omitempty"`
	// CPUSet is the file of the control group that keeps it from CPUs the host has.
	CPUSet string `json:"cpuset,omitempty"`

	// Only for processes that serve:
	States *ThreadStates `json:"thread_states,omitempty"`
	Course []RunSpan     `json:"course,omitempty"` // in order of time; only of those that use the CPU
	Exe    string        `json:"exe,omitempty"`    // name of the file it executes: "python3.11"
	Go     bool          `json:"go,omitempty"`     // a Go program: its threads are not what its work is divided into
	CPUs   string        `json:"cpus,omitempty"`   // those it may run on, when they are not all: "0-3,8"
	// ProgramVersion and ConfigVersion are the same text wherever the same build and
	// scripts are executed, and the same files configure it; nothing else is reported by them.
	ProgramVersion string `json:"program_version,omitempty"`
	ConfigVersion  string `json:"config_version,omitempty"`
}

// CPUSeconds is the CPU time the process used in the window.
func (p *Process) CPUSeconds() float64 { return p.UserSeconds + p.SystemSeconds }

// MovedBytes is what it read from storage and wrote there.
func (p *Process) MovedBytes() uint64 { return p.ReadBytes + p.WriteBytes }

// ThreadStates is what the threads of a process were seen doing, sampled over
// the window. Each of Samples looks at each thread once.
type ThreadStates struct {
	Rounds  int `json:"rounds"`  // how many times the process was looked at
	Samples int `json:"samples"` // thread × round
	Running int `json:"running"` // R: running or runnable
	Disk    int `json:"disk"`    // D: uninterruptible
	Stopped int `json:"stopped"` // T or t
	Waiting int `json:"waiting"` // S, but not waiting for work
	Accept  int `json:"accept"`  // S in accept(): idle, ready for a connection
	Poll    int `json:"poll"`    // S in epoll_wait, poll or select: idle, or waiting for any of many
}

// Busy is the number of samples in which a thread had work in hand.
func (t *ThreadStates) Busy() int { return t.Running + t.Disk + t.Stopped + t.Waiting }

// Cgroup is one control group that holds a process of interest, or an
// ancestor of one that has a limit of its own.
type Cgroup struct {
	Path    string `json:"path"`
	Version int    `json:"version"`        // 1 or 2; a v1 group is merged over its controllers
	PIDs    []int  `json:"pids,omitempty"` // processes of interest in it or below it

	QuotaCPUs        float64 `json:"quota_cpus,omitempty"` // CPUs allowed; 0 = no quota
	QuotaFile        string  `json:"quota_file,omitempty"` // cpu.max or cpu.cfs_quota_us, full path
	PeriodNS         int64   `json:"period_ns,omitempty"`
	Periods          uint64  `json:"periods,omitempty"`   // nr_periods
	ThrottledPeriods uint64  `json:"throttled,omitempty"` // nr_throttled
	ThrottledSeconds float64 `json:"throttled_seconds,omitempty"`

	MemoryLimitBytes   uint64  `json:"memory_limit_bytes,omitempty"` // 0 = none
	MemoryUsedBytes    uint64  `json:"memory_used_bytes,omitempty"`
	MemoryAtLimit      uint64  `json:"memory_at_limit,omitempty"` // times the limit was hit: memory.events max, memory.failcnt
	OOMKills           uint64  `json:"oom_kills,omitempty"`
	MemoryStallSeconds float64 `json:"memory_stall_seconds,omitempty"` // v2 memory.pressure "some"
	MemoryGrownBytes   int64   `json:"memory_grown_bytes,omitempty"`   // in use at the end, less what was at the beginning
	MemoryFileBytes    uint64  `json:"memory_file_bytes,omitempty"`    // page cache in it at the end, of a group with a limit
	MemoryHighBytes    uint64  `json:"memory_high_bytes,omitempty"`    // v2 memory.high: above it the group is slowed down; 0 = none
	MemoryAtHigh       uint64  `json:"memory_at_high,omitempty"`       // times it was slowed down: memory.events high
	// Refaults are pages of files read again soon after they were dropped from
	// the cache (memory.stat workingset_refault_file), of a group with a limit.
	Refaults uint64 `json:"refaults,omitempty"`

	CPUWeight int `json:"cpu_weight,omitempty"` // cpu.weight, or cpu.shares where 1024 is 100; 0 = not known
	// Files of its limits, full paths, where there are such limits.
	MemoryFile string `json:"memory_file,omitempty"` // memory.max, memory.limit_in_bytes
	HighFile   string `json:"high_file,omitempty"`   // memory.high
	PIDsFile   string `json:"pids_file,omitempty"`   // pids.max
	WeightFile string `json:"weight_file,omitempty"` // cpu.weight, cpu.shares

	Tasks       uint64    `json:"tasks,omitempty"`           // in it, where they have a limit
	PIDsLimit   uint64    `json:"pids_limit,omitempty"`      // pids.max; 0 = none
	PIDsRefused uint64    `json:"pids_refused,omitempty"`    // fork() and clone() that failed for it: pids.events max
	IO          []IOLimit `json:"io,omitempty"`              // of disks with a limit
	EndedIn     bool      `json:"ended_in_window,omitempty"` // it, or all of interest in it, was gone at the end: counters are those of the last look
}

// KernelLine counts kernel log messages of one kind and subject in the window.
type KernelLine struct {
	Kind    string `json:"kind"`            // see internal/sense/host/kmsg.go
	NetNS   uint64 `json:"netns,omitempty"` // as printed in the message, or 0
	Addr    string `json:"addr,omitempty"`
	Port    int    `json:"port,omitempty"`
	Subject string `json:"subject,omitempty"` // device, server, program: what the message names, or ""
	Count   int    `json:"count"`             // lines seen; the kernel rate-limits, so this is a lower bound
	Example string `json:"example,omitempty"` // first line, at most 256 bytes
}
