package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// RunSample is how far the CPU clocks of a process's threads stood at one
// moment.
type RunSample struct{ threads []threadSched }

// errNoSchedstat says that the kernel keeps no such figures.
var errNoSchedstat = errors.New("this kernel keeps no run delays (needs CONFIG_SCHED_INFO, and delayacct on the kernel command line where CONFIG_SCHEDSTATS is off)")

// RunTimes reads the CPU time and the run delay of each thread of a process:
// /proc/PID/task/TID/schedstat. Of a process with more than 256 threads
// nothing is read, for lack of time.
func (fs FS) RunTimes(pid int) (RunSample, error) {
	r := getRaw()
	defer r.put()
	dir, err := r.open(unix.AT_FDCWD, r.num(fs.Proc+"/", pid, "/task"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return RunSample{}, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	defer closeFD(dir)
	tids, err := r.numbers(dir, []byte(".\x00"))
	if err != nil {
		return RunSample{}, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	if len(tids) > maxThreads {
		return RunSample{}, fmt.Errorf("threads of process %d: more than %d", pid, maxThreads)
	}
	s := RunSample{threads: make([]threadSched, 0, len(tids))}
	for _, tid := range tids {
		b, err := r.read(dir, r.num("", tid, "/schedstat"))
		if err != nil {
			if errors.Is(err, unix.ENOENT) && r.exists(dir, r.num("", tid, "")) {
				return RunSample{}, errNoSchedstat
			}
			continue
		}
		t := threadSched{tid: tid}
		t.run, t.delay, t.slices, _ = parseSchedstat(b)
		s.threads = append(s.threads, t)
	}
	slices.SortFunc(s.threads, func(a, b threadSched) int { return a.tid - b.tid })
	return s, nil
}

// RunBetween is what the threads did from a to b, without the time it ended at.
func RunBetween(a, b RunSample) observe.RunSpan {
	var o observe.RunSpan
	threadsBetween(a.threads, b.threads, func(t threadSched) {
		run, delay := float64(t.run)/1e9, float64(t.delay)/1e9
		o.CPU += run
		o.Delay += delay
		if run+delay > o.TopCPU+o.TopDelay {
			o.TopTID, o.TopCPU, o.TopDelay = t.tid, run, delay
		}
	})
	return o
}

// Exe is the name of the file that a process executes, without its directory;
// empty when it may not be known.
func (fs FS) Exe(pid int) string {
	target, err := os.Readlink(filepath.Join(fs.Proc, fmt.Sprint(pid), "exe"))
	if err != nil {
		return ""
	}
	name := []byte(filepath.Base(target))
	if i := len(name) - len(" (deleted)"); i > 0 && string(name[i:]) == " (deleted)" {
		name = name[:i]
	}
	return printable.Name(name, 64)
}

// ThreadComm is the name of a thread, empty when it ended.
func (fs FS) ThreadComm(pid, tid int) string {
	s, err := fs.line(fmt.Sprintf("%d/task/%d/comm", pid, tid))
	if err != nil {
		return ""
	}
	return s
}

// AllowedCPUs is the list of CPUs that the main thread of a process may run on,
// as "0-3,8", and how many they are; zero when it is not known.
func (fs FS) AllowedCPUs(pid int) (list string, n int) {
	b, err := os.ReadFile(filepath.Join(fs.Proc, fmt.Sprint(pid), "status"))
	if err != nil {
		return "", 0
	}
	v, ok := AfterKey(b, "Cpus_allowed_list:")
	if !ok {
		return "", 0
	}
	return printable.Name(v, 256), countList(v)
}

// countList counts the numbers of a list as "0-3,8"; 0 when it is none.
func countList(b []byte) int {
	n := 0
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] != ',' {
			i++
		}
		part := b[:i]
		b = b[min(i+1, len(b)):]
		dash := slices.Index(part, '-')
		if dash < 0 {
			dash = len(part)
		}
		from, ok := ParseSmall(part[:dash])
		to := from
		if ok && dash < len(part) {
			to, ok = ParseSmall(part[dash+1:])
		}
		if !ok || to < from || to >= maxCPUs {
			return 0
		}
		n += to - from + 1
	}
	return n
}
