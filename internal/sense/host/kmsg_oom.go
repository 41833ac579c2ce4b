package host

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

const (
	// maxOOMRecords bounds how much of the kernel log is read for its kills.
	maxOOMRecords = 100_000
	maxOOMKills   = 64 // kept, the latest ones
)

// OOMKills reads what the kernel log still has of the processes that it killed
// because memory ran out since a time, oldest first. The log is read from its
// beginning: half a microsecond a line. At is in seconds from origin.
func OOMKills(path string, since, origin time.Time) ([]observe.OOMKill, error) {
	// Records are stamped by the scheduler's clock, which is CLOCK_MONOTONIC but
	// for some milliseconds.
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &up); err != nil {
		return nil, fmt.Errorf("clock: %w", err)
	}
	boot := time.Now().Add(-time.Duration(up.Nano()))
	var r oomReader
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil && path == kmsgDevice {
		if text, denied := readSyslog(); denied == nil {
			syslogRecords(text, since.Sub(boot), func(rec kmsgRecord, at time.Duration) {
				if rec.kernel {
					r.line(rec.text, boot.Add(at).Sub(origin).Seconds())
				}
			})
			return r.kills, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("kernel log %s: %w", path, err)
	}
	defer closeFD(fd)
	buf := make([]byte, 16<<10)
	for range maxOOMRecords {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR || err == unix.EPIPE { // overwritten meanwhile: go on with the oldest
			continue
		}
		if err != nil || n <= 0 {
			if err != nil && !errors.Is(err, unix.EAGAIN) {
				return r.kills, fmt.Errorf("kernel log %s: %w", path, err)
			}
			break
		}
		line, _ := nextLine(buf[:n])
		at, ok := kmsgTime(line)
		if !ok {
			continue
		}
		when := boot.Add(at)
		if when.Before(since) {
			continue
		}
		if rec, ok := parseKmsg(line); ok && rec.kernel {
			r.line(rec.text, when.Sub(origin).Seconds())
		}
	}
	return r.kills, nil
}

// kmsgTime is the third field of a record's head: µs since boot.
func kmsgTime(line []byte) (time.Duration, bool) {
	for range 2 {
		var ok bool
		if _, line, ok = bytes.Cut(line, []byte(",")); !ok {
			return 0, false
		}
	}
	i := bytes.IndexAny(line, ",;")
	if i < 0 {
		return 0, false
	}
	us, ok := ParseUint(line[:i])
	return time.Duration(us) * time.Microsecond, ok && us < 1<<50
}

// oomReader puts the lines of one kill together (dump_header,
// mem_cgroup_print_oom_meminfo and __oom_kill_process, mm/oom_kill.c and
// mm/memcontrol.c). The last of them names the victim.
type oomReader struct {
	by    string
	limit uint64
	about observe.OOMKill // from the line "oom-kill:constraint=…", since 4.20
	kills []observe.OOMKill
}

func (r *oomReader) line(text []byte, at float64) {
	if who, _, ok := bytes.Cut(text, []byte(" invoked oom-killer:")); ok {
		*r = oomReader{by: printable.Name(who, 64), kills: r.kills}
		return
	}
	if rest, ok := bytes.CutPrefix(text, []byte("memory: usage ")); ok {
		if _, rest, ok = bytes.Cut(rest, []byte(", limit ")); ok {
			r.limit = kilobytes(rest)
		}
		return
	}
	if rest, ok := bytes.CutPrefix(text, []byte("oom-kill:constraint=")); ok {
		r.constraint(rest)
		return
	}
	_, rest, ok := bytes.Cut(text, []byte("out of memory: Kill")) // "Memory cgroup out of memory: Killed process 12 (java)"
	host := false
	if !ok {
		if _, rest, ok = bytes.Cut(text, []byte("Out of memory")); !ok {
			return
		}
		if _, rest, ok = bytes.Cut(rest, []byte(": Kill")); !ok {
			return
		}
		host = true
	}
	r.killed(rest, host, at)
}

// constraint reads "CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,
// oom_memcg=/lab,task_memcg=/lab/a,task=java,pid=12,uid=0".
func (r *oomReader) constraint(b []byte) {
	for pair := range bytes.SplitSeq(b, []byte(",")) {
		key, value, _ := bytes.Cut(pair, []byte("="))
		switch string(key) {
		case "oom_memcg":
			r.about.LimitCgroup = printable.Name(value, 4096)
		case "task_memcg":
			r.about.Cgroup = printable.Name(value, 4096)
		case "pid":
			r.about.PID, _ = ParseSmall(value)
		}
	}
}

// killed reads "ed process 12 (java) total-vm:1kB, anon-rss:2kB, …"; before 5.3
// that is one of two lines, the other "Kill process 12 (java) score 900 or
// sacrifice child".
func (r *oomReader) killed(b []byte, host bool, at float64) {
	b, ok := bytes.CutPrefix(b, []byte("ed process "))
	if !ok {
		return
	}
	pid, b := nextField(b)
	k := observe.OOMKill{At: at, Host: host, By: r.by}
	if k.PID, ok = ParseSmall(bytes.TrimSuffix(pid, []byte(","))); !ok {
		return
	}
	// The name may hold any byte: it ends at the last parenthesis before the
	// figures.
	begin, end := bytes.IndexByte(b, '('), bytes.LastIndex(b, []byte(") total-vm:"))
	if end < 0 {
		end = bytes.LastIndex(b, []byte("), ")) // 5.3: "(java), UID 0, total-vm:"
	}
	if end < 0 {
		end = bytes.LastIndexByte(b, ')')
	}
	if begin < 0 || end <= begin {
		return
	}
	k.Comm = printable.Name(b[begin+1:end], 64)
	if _, rest, ok := bytes.Cut(b[end:], []byte("anon-rss:")); ok {
		k.AnonBytes = kilobytes(rest)
	}
	if r.about.PID == k.PID {
		k.Cgroup, k.LimitCgroup = r.about.Cgroup, r.about.LimitCgroup
		k.Container, k.Unit = ContainerOf(k.Cgroup), UnitOf(k.Cgroup)
	}
	if !host {
		k.LimitBytes = r.limit
	}
	r.kills = append(r.kills, k)
	if len(r.kills) > maxOOMKills {
		r.kills = append(r.kills[:0], r.kills[1:]...)
	}
}

// kilobytes reads "65536kB…" as bytes.
func kilobytes(b []byte) uint64 {
	end := 0
	for end < len(b) && b[end] >= '0' && b[end] <= '9' {
		end++
	}
	n, _ := ParseUint(b[:end])
	return saturate(n, 1024)
}
