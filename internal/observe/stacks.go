package observe

// Stacks is what threads did over a window, by call stack: each sample is a
// stack with how often or how long it was seen. Names of frames are kept once.
type Stacks struct {
	StartNS  int64         `json:"start_ns"` // wall clock, ns since 1970
	WindowNS int64         `json:"window_ns"`
	Types    []StackValue  `json:"types"` // what StackSample.Values mean, in their order
	Hz       int           `json:"hz,omitempty"`
	Frames   []Frame       `json:"frames"`
	Samples  []StackSample `json:"samples"`
	// Losses are stacks that are missing, and places where less is known than
	// could be: "no symbols in …".
	Losses []Loss   `json:"losses,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// StackValue is one kind of value of a sample, as pprof has it.
type StackValue struct {
	Type string `json:"type"` // "samples", "cpu", "off-cpu", "runnable"
	Unit string `json:"unit"` // "count", "nanoseconds"
}

// FrameKind says what executes a frame.
type FrameKind string

// The kinds of frames.
const (
	FrameKernel  FrameKind = "kernel"
	FrameNative  FrameKind = "native"
	FrameGo      FrameKind = "go"
	FramePython  FrameKind = "python"
	FrameJava    FrameKind = "java"
	FramePHP     FrameKind = "php"
	FrameNode    FrameKind = "node"
	FrameRuby    FrameKind = "ruby"
	FrameUnknown FrameKind = "unknown"
)

// Frame is one function in a stack.
type Frame struct {
	Name   string    `json:"name"` // demangled; "[libc.so.6+0x1234]" when there is no symbol
	Kind   FrameKind `json:"kind"`
	Module string    `json:"module,omitempty"` // binary, library or kernel module
	File   string    `json:"file,omitempty"`   // source
	Line   int       `json:"line,omitempty"`
	Inline bool      `json:"inline,omitempty"`
}

// StackSample is one stack of one thread (or of all threads that have one
// comm), with its values.
type StackSample struct {
	PID    int     `json:"pid"`
	TID    int     `json:"tid,omitempty"`
	Comm   string  `json:"comm"`             // of the process
	Thread string  `json:"thread,omitempty"` // of the thread, when it differs
	Frames []int32 `json:"frames"`           // indices into Stacks.Frames, leaf first
	Values []int64 `json:"values"`           // by Stacks.Types
	// State is what an off-CPU thread was: "blocked" or "runnable" (it wanted
	// a CPU); empty on CPU.
	State string `json:"state,omitempty"`
	// Slow says that it was in the time of a slow request; only when that was
	// asked for.
	Slow bool `json:"slow,omitempty"`
}
