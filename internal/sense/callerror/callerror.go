package callerror

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// The kernel's structures, laid out as in callerror.bpf.c.
type (
	errorKey struct{ TGID, NR, Error uint32 }

	errorCount struct {
		Calls uint64
		Args  [2]uint64
		TID   uint32
		NetNS uint32
		// Device is the kernel's number of one (MKDEV, include/linux/kdev_t.h).
		Device uint32
		_      uint32
		Comm   [16]byte
		Path   [96]byte
	}
)

// Watcher is the loaded program. Closing it unloads it.
type Watcher struct {
	proc    string // where procfs is mounted
	objects bpf.CallErrorObjects

	mu      sync.Mutex
	link    io.Closer // while it watches
	since   time.Time // it does
	watched time.Duration
	closed  bool
	targets map[errorKey]target
}

// target is what the first failure of its kind was about.
type target struct {
	path string // "" when it could not be identified any more
	fd   int    // -1 when it is no open file
	mnt  int    // number of its mount; 0 when not known
}

// Load loads the program and attaches nothing. It needs root, or CAP_BPF and
// CAP_PERFMON, and BTF. proc is where procfs is mounted.
func Load(proc string) (*Watcher, error) {
	spec, err := bpf.LoadCallError()
	if err != nil {
		return nil, fmt.Errorf("failing system calls: %w", err)
	}
	var kinds [maxCalls]uint8
	for nr, c := range calls {
		if nr < maxCalls {
			kinds[nr] = c.kind
		}
	}
	if err := spec.Variables["call_kinds"].Set(kinds); err != nil {
		return nil, fmt.Errorf("failing system calls: %w", err)
	}
	w := &Watcher{proc: proc, targets: map[errorKey]target{}}
	if err := bpf.Load(spec, &w.objects); err != nil {
		return nil, fmt.Errorf("failing system calls: %w", err)
	}
	return w, nil
}

// Watch begins to count. It does nothing while it counts already.
func (w *Watcher) Watch() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link != nil || w.closed {
		return nil
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: w.objects.CallError})
	if err != nil {
		return fmt.Errorf("failing system calls: attach: %w", err)
	}
	w.link, w.since = l, time.Now()
	return nil
}

// Rest ends what Watch began, and finds out which files the failures were
// about, as long as they are open. It waits for the kernel, for some tens of
// milliseconds.
func (w *Watcher) Rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest()
}

func (w *Watcher) rest() {
	if w.link == nil {
		return
	}
	w.watched += time.Since(w.since)
	w.link.Close()
	w.link = nil
	if w.closed {
		return
	}
	var (
		key errorKey
		val errorCount
		it  = w.objects.CallErrors.Iterate()
	)
	for it.Next(&key, &val) {
		if _, known := w.targets[key]; !known {
			w.targets[key] = w.target(&key, &val)
		}
	}
}

// Close unloads the program.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.rest()
	w.objects.Close()
}

// maxRead bounds what Read returns.
const maxRead = 256

// Read ends the counting and returns all failures so far, most first, for how
// long they were watched, and what was not counted.
func (w *Watcher) Read() ([]observe.CallError, time.Duration, []observe.Loss, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest()
	var (
		key  errorKey
		val  errorCount
		it   = w.objects.CallErrors.Iterate()
		list []observe.CallError
	)
	for it.Next(&key, &val) {
		t := w.targets[key]
		list = append(list, observe.CallError{
			PID: int(key.TGID), Comm: text(val.Comm[:]), NetNS: uint64(val.NetNS),
			Call: callName(key.NR), Error: errorName(key.Error), Calls: val.Calls, Path: t.path, Device: device(val.Device), MountID: t.mnt,
		})
	}
	if err := it.Err(); err != nil {
		return nil, w.watched, nil, fmt.Errorf("failing system calls: read: %w", err)
	}
	slices.SortFunc(list, func(a, b observe.CallError) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.PID, b.PID), strings.Compare(a.Call, b.Call), strings.Compare(a.Error, b.Error))
	})
	var losses []observe.Loss
	var lost uint64
	if err := w.objects.LostErrors.Get(&lost); err == nil && lost > 0 {
		losses = append(losses, observe.Loss{What: "failing system calls of more than 2,048 kinds", Count: int64(lost)})
	}
	if len(list) > maxRead {
		losses = append(losses, observe.Loss{What: "kinds of failing system calls that were not kept, the rarest", Count: int64(len(list) - maxRead)})
		list = list[:maxRead]
	}
	return list, w.watched, losses, nil
}

// target finds out what a failure was about.
func (w *Watcher) target(key *errorKey, val *errorCount) target {
	c := calls[key.NR]
	dir := filepath.Join(w.proc, strconv.Itoa(int(key.TGID)))
	switch {
	case c.kind&onFile != 0:
		fd := int(int32(val.Args[0]))
		name, err := os.Readlink(filepath.Join(dir, "fd", strconv.Itoa(fd)))
		if err != nil {
			return target{path: text(val.Path[:]), fd: fd} // closed meanwhile
		}
		return target{path: printable.Name(name, maxPath), fd: fd, mnt: mountID(filepath.Join(dir, "fdinfo", strconv.Itoa(fd)))}
	case c.kind&address != 0:
		return target{path: addressOf(val.Path[:]), fd: -1}
	case c.kind&(path0|path1) != 0:
		name := text(val.Path[:])
		if name != "" && !path.IsAbs(name) {
			base := "cwd"
			if at := int(int32(val.Args[0])); c.kind&path1 != 0 && at >= 0 && belowDirectory[c.name] {
				base = "fd/" + strconv.Itoa(at)
			}
			from, err := os.Readlink(filepath.Join(dir, base))
			if err != nil {
				return target{path: name, fd: -1}
			}
			name = path.Join(printable.Name(from, maxPath), name)
		}
		return target{path: name, fd: -1}
	}
	return target{fd: -1}
}

// addressOf reads a sockaddr: the address of a host, or the path of a unix socket.
func addressOf(b []byte) string {
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrFrom4([4]byte(b[4:8])).String()
	case unix.AF_INET6:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap().String()
	case unix.AF_UNIX: // as much of it as was read
		return text(b[2:])
	}
	return ""
}

// device writes a device as mountinfo does; "" for none.
func device(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", n>>20, n&(1<<20-1))
}

// belowDirectory are the calls whose first argument is the directory that a
// path begins at.
var belowDirectory = map[string]bool{
	"openat": true, "openat2": true, "mkdirat": true, "unlinkat": true, "faccessat": true, "newfstatat": true, "statx": true, "execveat": true,
}

// mountID reads the mnt_id of an open file (proc_pid_fdinfo(5)); 0 when it
// cannot be read.
func mountID(file string) int {
	const some = 4 << 10 // it comes first; that of an epoll instance has megabytes
	b, err := budget.Head(file, some)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

func callName(nr uint32) string {
	if c, ok := calls[nr]; ok {
		return c.name
	}
	return "call " + strconv.Itoa(int(nr))
}

func errorName(n uint32) string {
	if name, ok := errorNames[n]; ok {
		return name
	}
	return "error " + strconv.Itoa(int(n))
}

const maxPath = 4096 // PATH_MAX

func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return printable.Name(s, maxPath)
}
