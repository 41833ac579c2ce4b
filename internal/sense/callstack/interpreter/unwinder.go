package interpreter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	profilerlog "go.opentelemetry.io/ebpf-profiler/log"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"go.opentelemetry.io/ebpf-profiler/times"
	"go.opentelemetry.io/ebpf-profiler/tracer"

	"github.com/slowray/slowray/internal/sense/procmem"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// Unwinder is the library, loaded and running.
type Unwinder struct {
	space   *symbol.Space
	tracer  *tracer.Tracer
	program *ebpf.Program
	stop    context.CancelFunc
	traces  chan *libpf.EbpfTrace
	stack   []symbol.Location // of the trace being handled

	mu       sync.Mutex
	binaries map[libpf.FrameMappingFile]binary
	failure  string // what the library complained of last
}

// binary is a file that was mapped when a process was first met.
type binary struct {
	path string
	file *os.File // nil once taken
}

const (
	// pollEvery is how often the library looks at its ring.
	pollEvery = 100 * time.Millisecond
	// queued bounds the stacks that wait to be handled, at 25 KiB each.
	queued = 256
	// The library sizes its ring for records of the greatest length.
	recordBytes = 25 << 10
)

// ringBytes is room for what comes between two looks at the ring, at some KiB
// a record.
func ringBytes(cpus int) int { return min(max(cpus<<20, 8<<20), 64<<20) }

// intervals are the library's, for a run of seconds or minutes.
type intervals struct{}

func (intervals) MonitorInterval() time.Duration       { return time.Second }
func (intervals) TracePollInterval() time.Duration     { return pollEvery }
func (intervals) PIDCleanupInterval() time.Duration    { return time.Minute }
func (intervals) ExecutableUnloadDelay() time.Duration { return time.Hour }

// Start loads the library, for the interpreters that these processes run now, or
// any process when none are given: 0.3 s, and up to 0.2 s for each interpreter.
// It needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYSLOG and
// CAP_CHECKPOINT_RESTORE.
func Start(space *symbol.Space, pids []int) (*Unwinder, error) {
	u := &Unwinder{space: space, traces: make(chan *libpf.EbpfTrace, queued), binaries: map[libpf.FrameMappingFile]binary{}}
	profilerlog.SetLogger(*slog.New(slog.NewTextHandler((*complaints)(u), &slog.HandlerOptions{Level: slog.LevelError})))
	var ctx context.Context
	ctx, u.stop = context.WithCancel(context.Background())
	err := mappedFilesReadable()
	if err == nil {
		err = allowMemlock()
	}
	if err == nil {
		err = u.load(ctx, pids)
	}
	if err != nil {
		u.Close()
		return nil, fmt.Errorf("interpreters: %w", err)
	}
	return u, nil
}

// mappedFilesReadable asks for the right to open files through mappings, by
// which the library finds the binaries. Without it, it would say nothing and
// find nothing.
func mappedFilesReadable() error {
	const dir = "/proc/self/map_files"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("mapped files: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, entries[0].Name()))
	if errors.Is(err, fs.ErrPermission) {
		return errors.New("mapped files cannot be opened (needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN)")
	}
	if err == nil {
		f.Close()
	}
	return nil
}

func (u *Unwinder) load(ctx context.Context, pids []int) (err error) {
	times.StartRealtimeSync(ctx, 0)
	u.tracer, err = tracer.NewTracer(ctx, &tracer.Config{
		TraceReporter:      (*traceReporter)(u),
		ExecutableReporter: (*executableReporter)(u),
		Intervals:          intervals{},
		InterpretersConfig: present(pids),
		// Only the ring is sized by it: the clock is not the library's.
		SamplesPerSecond:       max(1, ringBytes(runtime.NumCPU())/recordBytes/runtime.NumCPU()),
		FilterIdleFrames:       true,
		FilterErrorFrames:      true,
		ProbabilisticThreshold: tracer.ProbabilisticThresholdMax,
	})
	if err != nil {
		return u.explain(err)
	}
	u.tracer.StartPIDEventProcessor(ctx)
	if err := u.tracer.StartMapMonitors(ctx, u.traces); err != nil {
		return u.explain(err)
	}
	u.program, err = entryOf(u.tracer)
	return err
}

// explain adds what the library wrote to its log.
func (u *Unwinder) explain(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failure == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, u.failure)
}

// complaints keeps the library's log from the terminal.
type complaints Unwinder

func (c *complaints) Write(line []byte) (int, error) {
	text := string(line[:min(len(line), 400)])
	// "time=… level=ERROR msg="…""
	if _, msg, ok := strings.Cut(text, "msg="); ok {
		text = strings.Trim(strings.TrimSpace(msg), `"`)
	}
	c.mu.Lock()
	c.failure = text
	c.mu.Unlock()
	return len(line), nil
}

// Trouble is what the library complained of last.
func (u *Unwinder) Trouble() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failure
}

// Program unwinds the thread it runs in when another perf event program calls
// it as its tail.
func (u *Unwinder) Program() *ebpf.Program { return u.program }

// Close unloads everything.
func (u *Unwinder) Close() {
	u.stop()
	if u.tracer != nil {
		u.tracer.Close()
	}
	if u.program != nil {
		u.program.Close()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, b := range u.binaries {
		if b.file != nil {
			b.file.Close()
			u.binaries[key] = binary{path: b.path}
		}
	}
}

// Stacks hands over the user stacks that have come in, leaf first, with the
// thread and the moment (monotonic clock, ns). The frames are valid during the
// call.
func (u *Unwinder) Stacks(each func(tid int, at uint64, frames []symbol.Location)) {
	for {
		select {
		case t := <-u.traces:
			if t == nil {
				continue // the library's mark that it has read all for now
			}
			tid, at := int(t.TID), uint64(t.KTime)
			u.stack = u.stack[:0]
			u.tracer.HandleTrace(t)
			if len(u.stack) > 0 {
				each(tid, at, u.stack)
			}
		default:
			return
		}
	}
}

// traceReporter is called by HandleTrace.
type traceReporter Unwinder

func (r *traceReporter) ReportTraceEvent(t *libpf.Trace, _ *samples.TraceEventMeta) error {
	u := (*Unwinder)(r)
	for _, h := range t.Frames {
		f := h.Value()
		if f.Type.Interpreter() == libpf.Kernel || f.Type.IsError() {
			continue
		}
		u.stack = append(u.stack, u.location(&f))
	}
	return nil
}

// executableReporter is called for each binary when a process is met that maps
// it, in any goroutine.
type executableReporter Unwinder

func (r *executableReporter) ReportExecutable(m *reporter.ExecutableMetadata) {
	if m.Mapping == nil || !m.Mapping.IsExecutable() {
		return
	}
	r.mu.Lock()
	_, met := r.binaries[m.MappingFile]
	r.mu.Unlock()
	if met {
		return
	}
	file, _ := procmem.OpenFile("/proc", int(m.Process.PID()), &procmem.Mapping{
		Start: m.Mapping.Vaddr, End: m.Mapping.Vaddr + m.Mapping.Length, Inode: m.Mapping.Inode, Path: m.Mapping.Path})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.binaries[m.MappingFile] = binary{path: string([]byte(m.Mapping.Path)), file: file}
}

// take gives a binary's file away.
func (u *Unwinder) take(key libpf.FrameMappingFile) *os.File {
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.binaries[key]
	u.binaries[key] = binary{path: b.path}
	return b.file
}

func (u *Unwinder) path(key libpf.FrameMappingFile) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.binaries[key].path
}

// entryProgram is the library's program for perf events, entryPrograms the field of its
// tracer that keeps it.
const (
	entryProgram  = "native_tracer_entry"
	entryPrograms = "ebpfProgs"
)

// entryOf is the program that the library would attach to a clock of its own, which runs
// in all processes. It has no method for it. What it offers instead (Tracer.Enable) has
// the kernel verify every program twice, for kprobes too: 1.2 s of CPU time more.
func entryOf(t *tracer.Tracer) (*ebpf.Program, error) {
	field := reflect.ValueOf(t).Elem().FieldByName(entryPrograms)
	if !field.IsValid() || field.Type() != reflect.TypeFor[map[string]*ebpf.Program]() {
		return nil, errors.New("the library keeps its programs elsewhere")
	}
	p := (*(*map[string]*ebpf.Program)(field.Addr().UnsafePointer()))[entryProgram]
	if p == nil {
		return nil, errors.New("the library has no program for perf events")
	}
	return p.Clone()
}

var _ io.Writer = (*complaints)(nil)
