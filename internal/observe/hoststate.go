package observe

// CallError counts system calls of a process that failed with an error which
// says that the host lacks something: ENOSPC, EROFS, ENOMEM, ENFILE, EACCES…
// They are counted for ErrorSeconds of the window.
type CallError struct {
	PID   int    `json:"pid"`
	Comm  string `json:"comm"`
	NetNS uint64 `json:"netns,omitempty"`
	Call  string `json:"call"`  // "write", "openat"; "call 511" for one without a name here
	Error string `json:"error"` // "ENOSPC"
	Calls uint64 `json:"calls"`
	// Path is the file that the first of them was about, as the process sees
	// it, or its name alone; empty when not even that is known.
	Path    string `json:"path,omitempty"`
	Device  string `json:"device,omitempty"`   // that this file is on, "254:1"
	MountID int    `json:"mount_id,omitempty"` // of an open file: its mount in the process's mount namespace
	Mount   string `json:"mount,omitempty"`    // the file system's mount point, as in Filesystem.Dir; empty when not known
	MountNS uint64 `json:"mnt_ns,omitempty"`   // inode of the mount namespace that Mount is in
}

// Filesystem is how full a local file system that services can see is, at the
// end of the window (statfs(2)).
type Filesystem struct {
	Dir       string `json:"dir"`    // where it is mounted, as processes of MountNS see it
	MountNS   uint64 `json:"mnt_ns"` // inode of the mount namespace
	PID       int    `json:"pid"`    // a process in that mount namespace
	Type      string `json:"type"`   // "ext4"
	Source    string `json:"source"` // "/dev/vda1"
	Device    string `json:"device"` // "254:1"
	SizeBytes uint64 `json:"size_bytes"`
	FreeBytes uint64 `json:"free_bytes"` // for whoever is not root
	// Inodes is 0 where the file system makes them as they are needed.
	Inodes     uint64 `json:"inodes,omitempty"`
	FreeInodes uint64 `json:"free_inodes,omitempty"`
	// ReadOnly is this mount's, ReadOnlyFS the whole file system's own state,
	// as after an error.
	ReadOnly   bool `json:"read_only,omitempty"`
	ReadOnlyFS bool `json:"read_only_fs,omitempty"`
	// ReadOnlyErrors says that it is mounted so as to become read-only when an
	// error is found on it (errors=remount-ro).
	ReadOnlyErrors bool `json:"read_only_errors,omitempty"`
}

// HostState is what else is known of the machine.
type HostState struct {
	Clocksource  string   `json:"clocksource,omitempty"`  // in use: "tsc", "kvm-clock", "hpet"…
	Clocksources []string `json:"clocksources,omitempty"` // that there are

	// Of the CPUs that were looked at, where the kernel shows their frequency:
	// the mean of what was seen while they were busy, what the hardware can do,
	// and what it is limited to, in kHz.
	CPUFreqKHz      uint64 `json:"cpu_freq_khz,omitempty"`
	CPUFreqMaxKHz   uint64 `json:"cpu_freq_max_khz,omitempty"`
	CPUFreqLimitKHz uint64 `json:"cpu_freq_limit_khz,omitempty"`
	// Throttled is how often CPUs were slowed down for heat in the window.
	Throttled uint64 `json:"throttled,omitempty"`

	Arrays []RAIDArray `json:"arrays,omitempty"` // of software RAID that is not whole, or at work on itself
}

// RAIDArray is a software RAID (/proc/mdstat).
type RAIDArray struct {
	Name    string `json:"name"`             // "md0"
	Level   string `json:"level"`            // "raid1"
	Devices int    `json:"devices"`          // that it should have
	Working int    `json:"working"`          // that it has
	Action  string `json:"action,omitempty"` // "recovery", "resync", "check", "reshape"
}

// WrittenFile is a regular file that a process writes.
type WrittenFile struct {
	Path  string `json:"path"`
	Bytes uint64 `json:"bytes"` // its offset in the file, at the end of the window
}
