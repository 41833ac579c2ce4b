package change

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process tells a process from one that has got its number later.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after the kernel's start (proc_pid_stat(5), field 22)
}

// ProcessOf is the process that has the number now.
func ProcessOf(pid int) (Process, error) {
	if pid <= 0 {
		return Process{}, errors.New("no process is named")
	}
	start, _, err := startOf(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		if errors.Is(err, ErrGone) {
			return Process{}, fmt.Errorf("process %d is gone", pid)
		}
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{pid, start}, nil
}

// startOf reads the start time and the state letter of a process or a thread.
func startOf(dir string) (start uint64, state byte, err error) {
	b, err := os.ReadFile(dir + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, 0, ErrGone
	}
	if err != nil {
		return 0, 0, err
	}
	return parseStat(b)
}

// parseStat reads a stat file of proc_pid_stat(5).
func parseStat(b []byte) (start uint64, state byte, err error) {
	// The name is in parentheses and may hold any character.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, errors.New("stat: too few fields")
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err
}

// Check says ErrGone when the process has ended, also when another has its
// number or only its entry waits to be collected.
func (p Process) Check() error {
	start, state, err := startOf(fmt.Sprintf("/proc/%d", p.PID))
	if err != nil {
		return err
	}
	if start != p.Start || state == 'Z' || state == 'X' {
		return ErrGone
	}
	return nil
}

// open gives a descriptor that stands for the process, whatever becomes of its
// number (pidfd_open(2), Linux 5.3).
func (p Process) open() (int, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, fmt.Errorf("process %d: %w", p.PID, refused(err, "CAP_SYS_PTRACE"))
	}
	if err := p.Check(); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Signal sends a signal to the process, and to no other that has its number by
// now. Signal 0 only asks whether one may be sent.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := p.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return refused(err, "CAP_KILL")
}

// thread is one thread of a process.
type thread struct {
	TID   int    `json:"tid"`
	Start uint64 `json:"start"`
}

// threads lists those of the process as they are now.
func (p Process) threads() ([]thread, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
	if err != nil {
		return nil, ErrGone
	}
	var out []thread
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		start, state, err := startOf(fmt.Sprintf("/proc/%d/task/%d", p.PID, tid))
		if err != nil || state == 'Z' || state == 'X' {
			continue
		}
		out = append(out, thread{tid, start})
	}
	if len(out) == 0 {
		return nil, ErrGone
	}
	return out, p.Check()
}

// allPIDs is the processes that there are.
func allPIDs() []int {
	entries, _ := os.ReadDir("/proc")
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// relatives are a process, all that it has started, and what its parent has
// started from the same program: the other workers of one server.
func relatives(pid int) []int {
	parents := map[int]int{}
	for _, p := range allPIDs() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			continue
		}
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(fields) > 1 {
			parents[p], _ = strconv.Atoi(string(fields[1]))
		}
	}
	top := []int{pid}
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	for p, parent := range parents {
		if p != pid && parent == parents[pid] && parent > 1 && exe != "" {
			if other, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p)); other == exe {
				if above, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", parent)); above == exe {
					top = append(top, p)
				}
			}
		}
	}
	return append(top, descendants(parents, top)...)
}

func descendants(parents map[int]int, of []int) []int {
	children, seen := map[int][]int{}, map[int]bool{}
	for p, parent := range parents {
		children[parent] = append(children[parent], p)
	}
	for _, p := range of {
		seen[p] = true
	}
	var out []int
	for todo := slices.Clone(of); len(todo) > 0; todo = todo[1:] {
		for _, p := range children[todo[0]] {
			if !seen[p] {
				seen[p] = true
				out, todo = append(out, p), append(todo, p)
			}
		}
	}
	return out
}

// linksOf gives the descriptors of a process whose link, as "socket:[123]", is
// wanted.
func linksOf(pid int, wanted func(link string) bool) map[int]string {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir)
	out := map[int]string{}
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !wanted(link) {
			continue
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			out[fd] = link
		}
	}
	return out
}

// inodeIn reads the number in a link such as "socket:[123]".
func inodeIn(link, kind string) uint64 {
	s, ok := strings.CutPrefix(link, kind+":[")
	if !ok {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	return n
}

// borrow makes a copy of a descriptor of another process (pidfd_getfd(2), Linux
// 5.6): the same open file, so what is set through it is set for its owner.
func borrow(p Process, fd int) (int, error) {
	pidfd, err := p.open()
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	switch {
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.ESRCH):
		return -1, ErrGone
	case err != nil:
		return -1, fmt.Errorf("descriptor %d of process %d: %w", fd, p.PID, refused(err, "CAP_SYS_PTRACE, and Linux 5.6"))
	}
	return own, nil
}

// Capable says whether this process has a capability (CAP_* of x/sys/unix).
func Capable(capability int) bool {
	b, _ := os.ReadFile("/proc/thread-self/status")
	_, rest, _ := strings.Cut(string(b), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && mask&(1<<capability) != 0
}
