package observe

// Container is a container that an engine on this host knows, or knew until
// lately: of those that run, the ones that processes of interest are in; of
// those that do not, the ones that ended in the last quarter of an hour.
type Container struct {
	ID    string `json:"id"` // shortened to 12, as in Process.Container
	Name  string `json:"name,omitempty"`
	Image string `json:"image,omitempty"`
	// ImageID is the beginning of the image's digest, 12 hexadecimal digits; empty where
	// nobody tells it.
	ImageID string `json:"image_id,omitempty"`
	Engine  string `json:"engine,omitempty"` // "docker", "podman", "containers-storage" (Podman, CRI-O), "containerd"
	// State is the engine's word for it: "running", "exited", "restarting",
	// "paused"…; "removed" when it is gone and the engine still remembers that;
	// empty when nobody said.
	State     string `json:"state,omitempty"`
	OOMKilled bool   `json:"oom_killed,omitempty"` // the engine says that it ended because memory ran out
	ExitCode  int    `json:"exit_code,omitempty"`
	Restarts  int    `json:"restarts,omitempty"`
	// EndedAt is when it ended, in seconds from the beginning of the window:
	// negative before it. 0 when it runs, or is not known to have ended.
	EndedAt float64 `json:"ended_at,omitempty"`

	MemoryLimitBytes uint64  `json:"memory_limit_bytes,omitempty"` // 0 = none, or not known
	QuotaCPUs        float64 `json:"quota_cpus,omitempty"`         // 0 = none, or not known
	// Options are what its command line and environment say of the size of a
	// runtime's heap: "-Xmx2g", "--max-old-space-size=4096". Nothing else of
	// them is kept.
	Options []string `json:"options,omitempty"`
	// Heap is what they come to; nil when it runs neither a JVM nor node.
	Heap *Heap `json:"heap,omitempty"`
}

// Down says that the engine knows the container not to run.
func (c *Container) Down() bool {
	switch c.State {
	case "exited", "dead", "removed", "removing", "stopped":
		return true
	}
	return false
}

// OOMKill is one process that the kernel killed because memory ran out, as its log
// tells (mm/oom_kill.c), in the window or in the quarter of an hour before it.
type OOMKill struct {
	At   float64 `json:"at"` // s from the beginning of the window, negative before it
	PID  int     `json:"pid"`
	Comm string  `json:"comm"`
	Host bool    `json:"host,omitempty"` // the whole machine ran out, not a control group

	Cgroup      string `json:"cgroup,omitempty"`       // that the process was in
	LimitCgroup string `json:"limit_cgroup,omitempty"` // that ran out of memory
	Container   string `json:"container,omitempty"`    // id from the path, shortened to 12
	Unit        string `json:"unit,omitempty"`

	AnonBytes  uint64 `json:"anon_bytes,omitempty"`  // of its own memory
	LimitBytes uint64 `json:"limit_bytes,omitempty"` // of the group; 0 when it was not printed
	By         string `json:"by,omitempty"`          // the process that asked for memory last
}

// Heap is how large the heap of a runtime may grow, over the window: of a JVM
// from the counters that it publishes in /tmp/hsperfdata_USER/PID (HotSpot),
// else from command lines and environments.
type Heap struct {
	PID     int    `json:"pid"`
	Comm    string `json:"comm"`
	Runtime string `json:"runtime"` // "jvm", "node", "go"
	// MaxBytes is how far it may grow; From says who set that: an option, or
	// "default".
	MaxBytes  uint64 `json:"max_bytes,omitempty"`
	From      string `json:"from,omitempty"`
	UsedBytes uint64 `json:"used_bytes,omitempty"` // at the end

	// Of a JVM that publishes its counters:
	Published   bool    `json:"published,omitempty"`
	Collector   string  `json:"collector,omitempty"` // "serial", "parallel", "g1", "zgc", "shenandoah"
	Chosen      bool    `json:"chosen,omitempty"`    // an option names the collector; else the JVM chose
	Collections uint64  `json:"collections,omitempty"`
	GCSeconds   float64 `json:"gc_seconds,omitempty"` // in collections, while which its threads stand still
}

// IOLimit is what a control group may do on one block device, and what it did:
// bytes and operations in a second (0 = no limit), and increases.
type IOLimit struct {
	Disk       string  `json:"disk"`   // name, or "major:minor"
	Number     string  `json:"number"` // "major:minor"
	File       string  `json:"file"`   // of the limit, full path
	ReadBPS    float64 `json:"read_bps,omitempty"`
	WriteBPS   float64 `json:"write_bps,omitempty"`
	ReadIOPS   float64 `json:"read_iops,omitempty"`
	WriteIOPS  float64 `json:"write_iops,omitempty"`
	ReadBytes  uint64  `json:"read_bytes,omitempty"`
	WriteBytes uint64  `json:"write_bytes,omitempty"`
	Reads      uint64  `json:"reads,omitempty"`
	Writes     uint64  `json:"writes,omitempty"`
}
