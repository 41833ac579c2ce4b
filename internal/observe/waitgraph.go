package observe

// WaitGraph is what the threads of the services waited for over the window,
// and how much of the time of slow requests passed while they did. Time is
// charged to whole chains: the last hop of a chain is who caused it, the hops
// in between only passed it on. Threads that are ready for work are not in it.
type WaitGraph struct {
	Looks     int   `json:"looks"`      // at each process that was watched, at most
	Processes int   `json:"processes"`  // that were watched
	EveryNS   int64 `json:"every_ns"`   // mean time between two looks at a process
	SlowerNS  int64 `json:"slower_ns"`  // a request that takes longer is slow here
	Followed  int   `json:"followed"`   // looks in which chains were followed
	UnknownNS int64 `json:"unknown_ns"` // thread time in waits that were over before they could be followed
	// Parked are threads that waited to be woken when the window ended, on a
	// condition variable or parked by their runtime: idle workers of pools.
	Parked   int   `json:"parked,omitempty"`
	ParkedNS int64 `json:"parked_ns,omitempty"` // the longest, from when it was first seen

	Shares []WaitShare `json:"shares,omitempty"` // most slow time first
	// Pools are groups of threads, of processes with slow requests, of which some
	// had something in hand whenever they were looked at.
	Pools  []ThreadPool `json:"pools,omitempty"`
	Slow   []SlowTime   `json:"slow,omitempty"`   // by process
	Unseen []string     `json:"unseen,omitempty"` // what could not be read and why, one sentence each
}

// WaitShare is one shape of wait chain: the same processes wait for the same
// kinds of objects, and it ends alike.
type WaitShare struct {
	PID   int       `json:"pid"`   // whose threads wait: the master of a family of processes
	Chain WaitChain `json:"chain"` // the longest wait of this shape, in full

	Samples   int   `json:"samples"`    // looks at a thread that waited so
	Threads   int   `json:"threads"`    // different threads that did
	AtOnce    int   `json:"at_once"`    // most of them in one look
	ThreadNS  int64 `json:"thread_ns"`  // time, over all threads
	LongestNS int64 `json:"longest_ns"` // a thread waited so, without running
	FirstNS   int64 `json:"first_ns"`   // first and last seen, from the beginning of the window
	LastNS    int64 `json:"last_ns"`
	AtEnd     int   `json:"at_end,omitempty"` // threads that still waited so when the window ended

	// SlowNS is the part of the slow requests' time (SlowTime.NS of the same
	// process) in which what held the request up waited so; SlowRequests counts
	// each of those requests by the part of its time that it lost so.
	SlowNS       int64   `json:"slow_ns,omitempty"`
	SlowRequests float64 `json:"slow_requests,omitempty"`
	// OfNS is the time, and OfRequests the number, of the slow requests of which a
	// twentieth or more was lost so.
	OfNS       int64 `json:"of_ns,omitempty"`
	OfRequests int   `json:"of_requests,omitempty"`
	// Reader says that threads which read requests waited so, as opposed to
	// threads that requests are handed to.
	Reader bool `json:"reader,omitempty"`
}

// SlowTime is the slow requests that a process (the master of a family)
// answers, or should answer.
type SlowTime struct {
	PID        int   `json:"pid"`
	Requests   int   `json:"requests"`             // slow ones
	Sampled    int   `json:"sampled,omitempty"`    // of them, those that were looked at, where all figures are an estimate from a fair sample
	Unfinished int   `json:"unfinished,omitempty"` // of them, those that had no answer when the window ended
	Unread     int   `json:"unread,omitempty"`     // of those, those that nobody had read
	NS         int64 `json:"ns"`                   // that they waited for the process to do something
	ComputeNS  int64 `json:"compute_ns,omitempty"` // of it, with the thread that read the request running or ready to
	// InterpreterNS is the part of it in which that thread waited for the lock of the
	// interpreter of Python (GIL).
	InterpreterNS int64 `json:"interpreter_ns,omitempty"`
	LongestNS     int64 `json:"longest_ns"`
	// Lent says that they are the requests of those that call the process over
	// a unix socket, where none are recorded.
	Lent bool `json:"lent,omitempty"`
}

// ThreadPool is threads, or worker processes, of one family of processes that
// have the same name but for a number, and began alike. Event loops are not among
// them.
type ThreadPool struct {
	PID  int    `json:"pid"`            // the master of the family
	Name string `json:"name"`           // of its threads, without their number: "pool-1-thread"
	Root string `json:"root,omitempty"` // of Python: the function that they run, "_worker thread.py"
	// Goroutines says that they are none of the kernel's threads, but goroutines that are in
	// Root, or began with it, at which requests wait for one of them.
	Goroutines bool `json:"goroutines,omitempty"`

	Busy   int   `json:"busy"`             // threads that had something in hand in nearly all looks
	Partly int   `json:"partly,omitempty"` // … in some
	Idle   int   `json:"idle,omitempty"`   // … in hardly any
	Looks  int   `json:"looks"`
	Ended  int   `json:"ended,omitempty"` // that were looked at, and ended in the window
	TIDs   []int `json:"tids,omitempty"`  // of those that are not idle, at most 64
	// Readers is how many of them read a slow request; Running how many were on a CPU
	// at a time, or ready for one, on average.
	Readers int     `json:"readers,omitempty"`
	Running float64 `json:"running,omitempty"`
	// Meanwhile is the share of the slow requests' time in which one of them that read
	// none was on a CPU, or ready for one, 0 to 1.
	Meanwhile float64 `json:"meanwhile,omitempty"`

	// Of those that are not idle: how often they ended a wait, what they were seen
	// doing, and where, in a program in Python.
	Switches uint64     `json:"switches,omitempty"`
	Does     []PoolCall `json:"does,omitempty"` // most often first, at most 4
	At       string     `json:"at,omitempty"`   // the innermost function that is the program's own: "work booking.py:90"
	Stack    []string   `json:"stack,omitempty"`
}

// PoolCall is a system call that threads were seen in, or "running".
type PoolCall struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"` // of the looks at them, 0 to 1
}
