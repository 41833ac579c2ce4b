package observe

// Profile is CPU samples of the whole host: how often each process was seen on
// a CPU, and what it executed where a cause may want to know.
type Profile struct {
	Hz        int              `json:"hz"` // per CPU
	Samples   uint64           `json:"samples"`
	Processes []ProfileProcess `json:"processes,omitempty"`
	// ShortLived are processes that began and ended within the window, summed
	// up by program and parent, most samples first.
	ShortLived []ProfileShort `json:"short_lived,omitempty"`
}

// ProfileProcess is one process's share of the samples.
type ProfileProcess struct {
	PID        int    `json:"pid"`
	Comm       string `json:"comm"`
	Parent     int    `json:"parent,omitempty"` // pid, when it was sampled first
	Nice       int    `json:"nice,omitempty"`   // of one of its threads
	Samples    uint64 `json:"samples"`
	PortSearch uint64 `json:"port_search"` // inside __inet_hash_connect (search for a free local port)

	// Kernel is the samples with the CPU in the kernel on the process's behalf.
	Kernel uint64 `json:"kernel,omitempty"`
	// Threads are the busiest ones, at most 4, when the process has several.
	Threads []ProfileThread `json:"threads,omitempty"`
	// Functions are those with most samples, by themselves or with all they
	// call, and those of the kernel with most samples; only of processes that serve and of kernel threads that use a good
	// part of a CPU. They are of Looked samples, which were taken for a part of
	// the window and have the frames of interpreters; of Samples when that is 0.
	Functions []ProfileFunction `json:"functions,omitempty"`
	Looked    uint64            `json:"looked,omitempty"`
	// Unnamed is the samples whose innermost function has no known name; only
	// together with Functions.
	Unnamed uint64 `json:"unnamed,omitempty"`
}

// ProfileThread is one thread's share of a process's samples.
type ProfileThread struct {
	TID       int               `json:"tid"`
	Comm      string            `json:"comm"`
	Samples   uint64            `json:"samples"`
	Functions []ProfileFunction `json:"functions,omitempty"` // as of the process, at most 6
	Looked    uint64            `json:"looked,omitempty"`
}

// ProfileFunction is a function's share of the samples.
type ProfileFunction struct {
	Frame
	Self  uint64 `json:"self"`  // samples in the function itself
	Total uint64 `json:"total"` // samples in it or in what it calls
	// Own is the samples in which it is the innermost function of the language
	// that the program is written in: its own time with that of its
	// interpreter. Of a function that is not interpreted it is Self, without
	// the samples that belong to an interpreted one.
	Own uint64 `json:"own"`
	// Height is the mean number of frames between it and the innermost one.
	Height float64 `json:"height"`
}

// Interpreted says that an interpreter or a virtual machine executes the
// function.
func (k FrameKind) Interpreted() bool {
	switch k {
	case FramePython, FramePHP, FrameJava, FrameNode, FrameRuby:
		return true
	}
	return false
}

// ProfileShort is processes of one program and one parent.
type ProfileShort struct {
	Comm       string `json:"comm"`
	Parent     int    `json:"parent"` // pid
	ParentComm string `json:"parent_comm,omitempty"`
	Nice       int    `json:"nice,omitempty"`
	Processes  int    `json:"processes"` // that were seen on a CPU: a lower bound
	Samples    uint64 `json:"samples"`
}
