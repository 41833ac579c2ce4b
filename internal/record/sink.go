package record

import (
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Sink gets what is recorded, as it happens. Calls of Second and Request come
// from one goroutine, the one that reads the kernel's rings, and those of Window
// from another: none may wait for a disk or a network, for rings run full
// meanwhile. What is handed over belongs to the caller again when the call
// returns, but for a Window, which is never changed.
type Sink interface {
	// Second is what each endpoint did in the second that began at, in s since
	// 1970. It comes for every second, shortly after its end, also when nothing
	// happened.
	Second(at int64, endpoints []store.Second)
	// Request is a request that was kept: slow, failed, or one of a sample.
	Request(r *store.Request)
	// Window is a window that was watched and judged.
	Window(w *Window)
}

// Window is one window and what came of it.
type Window struct {
	Observation *observe.Observation // nil when it could not be watched
	Report      diagnose.Report
	Err         error // why it could not be watched
	// Findings are those that are going on, worst first, and then those that
	// were in the window before and are in this one no more.
	Findings []Finding
}

// Finding is a cause on a subject over windows next to each other, as it was in
// the last of them.
type Finding struct {
	cause.Finding
	Onset   time.Time // when it began in the first window that has it, or the beginning of that
	End     time.Time // the end of the last one; zero while it goes on
	Windows int       // that have it
	New     bool      // this is the first
}

// Status is what the recorder did, and what it costs.
type Status struct {
	Since    time.Time // when it was started
	Store    store.Stats
	Requests RequestStats
	Windows  uint64   // watched
	Failed   uint64   // windows that could not be watched
	LastFail string   // why, of the last one
	CPUShare float64  // of the host, over the last minute: this process, user and system
	RSSBytes int64    // resident memory
	Missing  []string // what this kernel cannot show, one sentence each
	Losses   []observe.Loss
}

// RequestStats counts requests since the start.
type RequestStats struct {
	Seen    uint64 // finished, as the kernel counts them
	Slow    uint64 // kept because they were slow
	Failed  uint64 // kept because they failed
	Sampled uint64 // kept as a sample
}
