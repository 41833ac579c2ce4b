package observe

// Functions is what was seen of the calls of some functions over a window.
type Functions struct {
	Target   string        `json:"target"`            // as it was asked for
	Process  *WaitProcess  `json:"process,omitempty"` // when the target is one
	StartNS  int64         `json:"start_ns"`          // wall clock, ns since 1970
	WindowNS int64         `json:"window_ns"`
	Calls    []Function    `json:"functions"` // most time first
	Price    FunctionPrice `json:"price"`
	// Stopped says why watching ended before its time; empty when it did not.
	Stopped string   `json:"stopped,omitempty"`
	Losses  []Loss   `json:"losses,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// FunctionPrice is what watching cost those who were watched.
type FunctionPrice struct {
	Hits     uint64 `json:"hits"`                 // entries and returns
	PerHitNS int64  `json:"per_hit_ns,omitempty"` // measured on this machine just before; 0 = could not be measured
}

// FunctionKind says what kind of thing is called.
type FunctionKind string

// The kinds of what can be watched.
const (
	FunctionNative     FunctionKind = "function"   // of a binary or library
	FunctionGo         FunctionKind = "go"         // of a Go program
	FunctionUSDT       FunctionKind = "usdt"       // a static probe in a binary
	FunctionTracepoint FunctionKind = "tracepoint" // in the kernel
	FunctionSyscall    FunctionKind = "syscall"
	FunctionKernel     FunctionKind = "kprobe" // a function of the kernel
)

// Function is what was seen of one function, or of a place that is passed and
// has no duration.
type Function struct {
	Name   string       `json:"name"` // demangled
	Module string       `json:"module,omitempty"`
	Kind   FunctionKind `json:"kind"`
	Timed  bool         `json:"timed"`          // whether calls have a duration
	Note   string       `json:"note,omitempty"` // why not, or what else to know

	Calls    uint64    `json:"calls"`    // that began in the window
	Returned uint64    `json:"returned"` // of those, that ended in it
	TotalNS  int64     `json:"total_ns"` // of those that returned; calls within calls count in both
	CPUNS    int64     `json:"cpu_ns"`   // of it on a CPU; -1 = not known
	MaxNS    int64     `json:"max_ns"`
	Latency  Histogram `json:"latency"`

	// Failed counts returns that are errors; only where Errors says what is one.
	Failed uint64 `json:"failed"`
	Errors string `json:"errors,omitempty"` // "negative", "null", "nonzero", "errno"

	Unfinished []FunctionCall `json:"unfinished,omitempty"` // still running at the end, longest first, at most 64
	Running    int            `json:"running,omitempty"`    // how many
	Left       uint64         `json:"left,omitempty"`       // left without a return: longjmp, exception, end of the thread
	Early      uint64         `json:"early,omitempty"`      // returns of calls that began before the window
	Untimed    uint64         `json:"untimed,omitempty"`    // counted, but not timed because room ran out

	Slowest []FunctionCall   `json:"slowest,omitempty"` // slowest first; of a place, examples
	Threads []FunctionThread `json:"threads,omitempty"` // most time first, at most 16
	// Share is how much of the time of slow requests was spent inside; only
	// when that was asked for.
	Share *FunctionShare `json:"share,omitempty"`
}

// FunctionCall is one call.
type FunctionCall struct {
	StartNS    int64    `json:"start_ns"` // wall clock
	DurationNS int64    `json:"duration_ns"`
	CPUNS      int64    `json:"cpu_ns,omitempty"`
	PID        int      `json:"pid"`
	TID        int      `json:"tid"`
	Comm       string   `json:"comm,omitempty"` // of the thread
	Args       []string `json:"args,omitempty"` // "2 = 4096"; text is quoted
	Result     *int64   `json:"result,omitempty"`
	Stack      []Frame  `json:"stack,omitempty"`  // who called, leaf first
	Kernel     []Frame  `json:"kernel,omitempty"` // the part in the kernel, of tracepoints
}

// FunctionThread is how much of the calls one thread made.
type FunctionThread struct {
	PID     int    `json:"pid"`
	TID     int    `json:"tid"`
	Comm    string `json:"comm"`
	Calls   uint64 `json:"calls"`
	TotalNS int64  `json:"total_ns"`
	MaxNS   int64  `json:"max_ns"`
}

// FunctionShare is how much of the time of slow requests was spent in a
// function by the threads that read them.
type FunctionShare struct {
	Requests int   `json:"requests"`  // slow requests of the process
	Touched  int   `json:"touched"`   // of those, that the function ran in
	TimeNS   int64 `json:"time_ns"`   // of all of them
	InsideNS int64 `json:"inside_ns"` // of it inside the function
}

// Buckets is how many buckets a Histogram has at most. The kernel side of
// function calls counts in the same.
const Buckets = maxBucket

// HistogramOf is a histogram from counts by bucket, as the kernel side has
// them, and the largest value in ns. counts is not kept.
func HistogramOf(counts []uint64, largest int64) Histogram {
	var h Histogram
	for b, n := range counts {
		if n > 0 {
			h.AddN(bucketMiddle(b), n)
		}
	}
	// Two CPUs may have written the largest at once, and the smaller one last.
	if bucketOf(largest) == bucketOf(h.max) {
		h.max = max(largest, 0)
	}
	return h
}

// Bars are the values of a histogram by power of two, for a picture of it.
func (h *Histogram) Bars() []HistogramBar {
	var bars []HistogramBar
	add := func(b int, n uint64) {
		low, high := int64(0), int64(1)<<linearBits
		if e := b >> subBits; e > 0 {
			low = int64(1) << (e + linearBits - 1)
			high = low * 2
		}
		if k := len(bars); k > 0 && bars[k-1].FromNS == low {
			bars[k-1].Count += n
			return
		}
		bars = append(bars, HistogramBar{FromNS: low, ToNS: high, Count: n})
	}
	if h.low > 0 {
		add(0, h.low)
	}
	for i, n := range h.counts {
		if n == 0 && len(bars) == 0 {
			continue
		}
		add(h.base+i, n)
	}
	for len(bars) > 0 && bars[len(bars)-1].Count == 0 {
		bars = bars[:len(bars)-1]
	}
	return bars
}

// HistogramBar is how many values lie in [FromNS, ToNS).
type HistogramBar struct {
	FromNS, ToNS int64
	Count        uint64
}
