package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"golang.org/x/sys/unix"
)

// ticks is USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// statFields is /proc/PID/stat behind the name: the state, the parent, …
// (proc_pid_stat(5)).
func statFields(pid int) (comm string, fields []string, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", nil, err
	}
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return "", nil, errors.New("stat: no name")
	}
	fields = strings.Fields(string(b[shut+1:]))
	if len(fields) < 20 {
		return "", nil, errors.New("stat: too few fields")
	}
	return string(b[open+1 : shut]), fields, nil
}

// startTicks is when a process was started, in ticks since the boot; an error
// where there is none, or only what its parent has not waited for.
func startTicks(pid int) (uint64, error) {
	_, f, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, unix.ESRCH
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// hears says that a process has a handler for a signal, or blocks it and reads it later
// (SigCgt and SigBlk of proc_pid_status(5)).
func hears(pid int, signal unix.Signal) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		name, mask, _ := strings.Cut(line, ":")
		if name != "SigCgt" && name != "SigBlk" {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err == nil && set&(1<<(signal-1)) != 0 {
			return true
		}
	}
	return false
}

// unixNS turns ticks since the boot into Unix nanoseconds, by the clocks as they
// are now. Right to 10 ms where the clock was not set since.
func unixNS(t uint64) int64 { return bootNS() + int64(t)*int64(time.Second/ticks) }

// bootNS is when the host was started, by the clocks as they are now. They are
// read again where the thread was interrupted in between.
func bootNS() (at int64) {
	closest := int64(1 << 62)
	for range 20 {
		var before, after unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &before)
		now := time.Now().UnixNano()
		if err = errors.Join(err, unix.ClockGettime(unix.CLOCK_BOOTTIME, &after)); err != nil {
			return 0
		}
		if gap := after.Nano() - before.Nano(); gap < closest {
			closest, at = gap, now-before.Nano()-gap/2
		}
		if closest < int64(100*time.Microsecond) {
			break
		}
	}
	return at
}

// started gives pids with their starts; those that have ended are left out.
func started(pids []int) map[int]uint64 {
	out := map[int]uint64{}
	for _, pid := range pids {
		if t, err := startTicks(pid); err == nil {
			out[pid] = t
		}
	}
	return out
}

func oldest(workers map[int]uint64) (t uint64) {
	for _, s := range workers {
		if t == 0 || s < t {
			t = s
		}
	}
	return t
}

// gone says that none of the old workers is among the new ones.
func gone(old, new map[int]uint64) bool {
	for pid, t := range old {
		if new[pid] == t {
			return false
		}
	}
	return true
}

// processes is what the readers want to know of processes: of all, or of one and
// its children.
func processes(only int) []observe.Process {
	names, err := readNames("/proc")
	if err != nil {
		return nil
	}
	var out []observe.Process
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		comm, f, err := statFields(pid)
		if err != nil {
			continue
		}
		ppid, _ := strconv.Atoi(f[1])
		if only != 0 && pid != only && ppid != only {
			continue
		}
		line, _ := budget.Head("/proc/"+n+"/cmdline", 4096)
		text := strings.TrimSpace(strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " "))
		out = append(out, observe.Process{PID: pid, PPID: ppid, State: f[0], Comm: comm, Cmdline: text})
	}
	return out
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// maxMaps is how much of a memory map is read: more than 65,530 mappings of a usual
// name take (vm.max_map_count).
const maxMaps = 16 << 20

// sharedMemory is the anonymous shared memory that a process has mapped, which
// it makes anew whenever it executes itself, and when the first was made (Unix
// nanoseconds; 0 where that is not to be seen: map_files needs CAP_SYS_ADMIN or
// CAP_CHECKPOINT_RESTORE).
func sharedMemory(pid int) (mark string, since int64) {
	dir := "/proc/" + strconv.Itoa(pid)
	maps, err := budget.Head(dir+"/maps", maxMaps)
	if err != nil {
		return "", 0
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, " /dev/zero (deleted)") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		mark += f[4] + " "
		var st unix.Stat_t
		if unix.Stat(fmt.Sprintf("%s/map_files/%s", dir, f[0]), &st) == nil && (since == 0 || st.Ctim.Nano() < since) {
			since = st.Ctim.Nano()
		}
	}
	return mark, since
}

// madePipes are the pipes of which a process holds both ends, with the moment
// that the latest was made, in Unix nanoseconds: a server makes them for itself
// when it reads its configuration.
func madePipes(pid int) (mark string, since int64) {
	dir := "/proc/" + strconv.Itoa(pid)
	names, err := readNames(dir + "/fd")
	if err != nil {
		return "", 0
	}
	ends := map[string]int{} // of each pipe: bit 0 to read, bit 1 to write
	for _, n := range names {
		link, err := os.Readlink(dir + "/fd/" + n)
		if err != nil || !strings.HasPrefix(link, "pipe:") {
			continue
		}
		info, _ := os.ReadFile(dir + "/fdinfo/" + n)
		_, rest, _ := strings.Cut(string(info), "flags:")
		flags, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 8, 64)
		bit := 1
		if flags&unix.O_ACCMODE == unix.O_WRONLY {
			bit = 2
		}
		if ends[link] |= bit; ends[link] != 3 {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(dir+"/fd/"+n, &st) == nil && st.Ctim.Nano() > since {
			since, mark = st.Ctim.Nano(), link
		}
	}
	return mark, since
}
