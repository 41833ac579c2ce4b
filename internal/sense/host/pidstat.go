package host

import (
	"bytes"
	"os"

	"github.com/slowray/slowray/internal/printable"
)

// pfKthread marks a kernel thread in the flags of a task (PF_KTHREAD,
// include/linux/sched.h).
const pfKthread = 0x00200000

var pageBytes = uint64(os.Getpagesize())

// Fields of /proc/PID/stat, numbered as in proc_pid_stat(5).
const (
	statPPID    = 4
	statFlags   = 9
	statMajflt  = 12
	statUtime   = 14
	statStime   = 15
	statCutime  = 16
	statCstime  = 17
	statNice    = 19
	statThreads = 20
	statStart   = 22
	statRSS     = 24
	statPolicy  = 41
)

// parsePIDStat reads /proc/PID/stat into p; false when it is not one. The name
// of the process may hold any byte, also ") R 1 2", so the fields are counted
// from the last closing parenthesis.
func parsePIDStat(b []byte, p *ProcSample) bool {
	open, last := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || last < open {
		return false
	}
	comm := b[open+1 : last]
	rest, _ := nextLine(b[last+1:])
	state, rest := nextField(rest)
	if len(state) != 1 {
		return false
	}
	p.Comm, p.State = printable.Name(comm, 64), state[0]
	for n := statPPID; n <= statPolicy; n++ {
		var f []byte
		f, rest = nextField(rest)
		if len(f) == 0 {
			return n > statStart
		}
		switch n {
		case statPPID:
			p.PPID, _ = ParseSmall(f)
		case statFlags:
			flags, _ := ParseUint(f)
			p.Kernel = flags&pfKthread != 0
		case statMajflt:
			p.MajorFaults, _ = ParseUint(f)
		case statUtime:
			p.UserTicks, _ = ParseUint(f)
		case statStime:
			p.SystemTicks, _ = ParseUint(f)
		case statCutime, statCstime:
			ticks, _ := ParseUint(f)
			p.ChildTicks += ticks
		case statNice:
			nice, _ := parseInt(f)
			p.Nice = int(min(max(nice, -20), 19))
		case statThreads:
			p.Threads, _ = ParseSmall(f)
		case statStart:
			p.StartTicks, _ = ParseUint(f)
		case statRSS:
			if pages, ok := parseInt(f); ok && pages > 0 && pages < 1<<45 {
				p.RSSBytes = uint64(pages) * pageBytes
			}
		case statPolicy:
			p.Policy = policy(f)
		}
	}
	return true
}

// policy names a policy of the scheduler that is not the usual one, else it is
// empty (include/uapi/linux/sched.h). SCHED_BATCH competes like the usual one.
func policy(b []byte) string {
	switch string(b) {
	case "1":
		return "fifo"
	case "2":
		return "rr"
	case "5":
		return "idle"
	case "6":
		return "deadline"
	}
	return ""
}

// statState is the state letter of a stat file, 0 when it is not one.
func statState(b []byte) byte {
	last := bytes.LastIndexByte(b, ')')
	if last < 0 {
		return 0
	}
	f, _ := nextField(b[last+1:])
	if len(f) != 1 {
		return 0
	}
	return f[0]
}
