package bpf

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/osthread"
)

// tracefsDirs is where tracefs is looked for (tracefs has its own mount point
// since Linux 4.1; before that it was seen through debugfs).
var tracefsDirs = []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}

// AttachTracepoint attaches prog to the classic tracepoint group/name, for
// calls on every CPU. Closing the result detaches it.
func AttachTracepoint(group, name string, prog *ebpf.Program) (io.Closer, error) {
	id, err := tracepointID(group, name)
	if err != nil {
		return nil, fmt.Errorf("tracepoint %s/%s: %w", group, name, err)
	}
	// A program attached to a tracepoint event runs for every hit, whatever
	// CPU the event is bound to (perf_trace_run_bpf_submit).
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_TRACEPOINT,
		Config: id,
		Size:   uint32(unix.PERF_ATTR_SIZE_VER5),
		Sample: 1,
		Wakeup: 1,
	}, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tracepoint %s/%s: open event: %w", group, name, err)
	}
	event := os.NewFile(uintptr(fd), group+"/"+name)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
		event.Close()
		return nil, fmt.Errorf("tracepoint %s/%s: set program: %w", group, name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		event.Close()
		return nil, fmt.Errorf("tracepoint %s/%s: enable event: %w", group, name, err)
	}
	return event, nil
}

// tracepointID reads the number by which perf_event_open knows a tracepoint.
func tracepointID(group, name string) (uint64, error) {
	file := filepath.Join("events", group, name, "id")
	for _, dir := range tracefsDirs {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			return parseID(data)
		}
		if os.IsPermission(err) {
			return 0, fmt.Errorf("tracefs: %w", err)
		}
	}
	data, err := readFromPrivateTracefs(file)
	if err != nil {
		return 0, err
	}
	return parseID(data)
}

func parseID(data []byte) (uint64, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("tracefs: malformed tracepoint id: %w", err)
	}
	return id, nil
}

// readFromPrivateTracefs reads a tracefs file on a host where tracefs is not
// mounted. Mounting it there would change the host, so it is mounted in a
// mount namespace that exists for one thread and ends with it.
func readFromPrivateTracefs(file string) ([]byte, error) {
	var data []byte
	err := osthread.Own(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("tracefs is not mounted, and a private mount namespace is refused: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("tracefs: private mounts: %w", err)
		}
		dir := tracefsDirs[0]
		if err := unix.Mount("tracefs", dir, "tracefs", 0, ""); err != nil {
			return fmt.Errorf("tracefs: mount: %w", err)
		}
		data, err = fs.ReadFile(os.DirFS(dir), file)
		return err
	})
	return data, err
}
