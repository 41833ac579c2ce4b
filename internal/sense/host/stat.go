package host

import (
	"io"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// userHZ is the unit of CPU times in procfs, ticks per second. The kernel
// scales to USER_HZ, which is 100 on every architecture Go runs on.
const userHZ = 100

// maxCPUs bounds the CPU numbers taken from a file; CONFIG_NR_CPUS is at most
// 8192 on any architecture.
const maxCPUs = 8192

// cpuTicks is one cpu line of /proc/stat in the order of the file: user, nice,
// system, idle, iowait, irq, softirq, steal, in ticks of 1/userHZ s. The guest
// columns that follow are contained in user and nice and are left out.
type cpuTicks [8]uint64

const (
	tickIdle   = 3
	tickIOWait = 4
)

// statSample is /proc/stat (proc_stat(5), fs/proc/stat.c).
type statSample struct {
	all   cpuTicks
	cpus  []cpuTicks // by CPU number
	seen  []bool     // whether the CPU was online
	forks uint64     // processes and threads created since boot
}

func (s *statSample) online() int {
	n := 0
	for _, on := range s.seen {
		if on {
			n++
		}
	}
	return n
}

// parseStat reads /proc/stat. Lines of unknown kind are skipped.
func parseStat(r io.Reader) (statSample, error) {
	b, err := io.ReadAll(io.LimitReader(r, 16<<20))
	var s statSample
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		key, rest := nextField(line)
		switch {
		case len(key) >= 3 && string(key[:3]) == "cpu":
			s.addCPU(key[3:], rest)
		case string(key) == "processes":
			v, _ := nextField(rest)
			s.forks, _ = ParseUint(v)
		}
	}
	return s, err
}

func (s *statSample) addCPU(number, columns []byte) {
	var t cpuTicks
	for i := range t {
		var f []byte
		f, columns = nextField(columns)
		t[i], _ = ParseUint(f)
	}
	if len(number) == 0 {
		s.all = t
		return
	}
	n, ok := ParseSmall(number)
	if !ok || n >= maxCPUs {
		return
	}
	for len(s.cpus) <= n {
		s.cpus, s.seen = append(s.cpus, cpuTicks{}), append(s.seen, false)
	}
	s.cpus[n], s.seen[n] = t, true
}

// cpuBetween is the time one CPU, or all n together, spent in each mode. Idle
// and iowait can jump when a CPU comes online again (another clock keeps them
// while it is off), so they are held to what the elapsed time leaves; elapsed 0
// means it is not known.
func cpuBetween(a, b cpuTicks, elapsed time.Duration) observe.CPUTime {
	var d [len(cpuTicks{})]float64
	busy := 0.0
	for i := range d {
		d[i] = float64(grown(a[i], b[i])) / userHZ
		if i != tickIdle && i != tickIOWait {
			busy += d[i]
		}
	}
	if elapsed > 0 {
		// One tick of slack for each mode: the columns are rounded down.
		left := max(0, elapsed.Seconds()-busy) + float64(len(d))/userHZ
		d[tickIOWait] = min(d[tickIOWait], left)
		d[tickIdle] = min(d[tickIdle], left)
	}
	return observe.CPUTime{User: d[0], Nice: d[1], System: d[2], Idle: d[3], IOWait: d[4], IRQ: d[5], SoftIRQ: d[6], Steal: d[7]}
}

// statBetween returns the CPU time of the host and of each CPU. The element of
// a CPU that was not online at both ends is zero, so that its index stays the
// CPU number. The sum is over the CPUs, because the kernel's own sum line jumps
// when a CPU goes off or comes back.
func statBetween(a, b statSample, elapsed time.Duration) (all observe.CPUTime, each []observe.CPUTime) {
	if b.online() == 0 {
		return cpuBetween(a.all, b.all, 0), nil
	}
	each = make([]observe.CPUTime, len(b.cpus))
	for i := range b.cpus {
		if i >= len(a.cpus) || !a.seen[i] || !b.seen[i] {
			continue
		}
		c := cpuBetween(a.cpus[i], b.cpus[i], elapsed)
		each[i] = c
		all.User += c.User
		all.Nice += c.Nice
		all.System += c.System
		all.Idle += c.Idle
		all.IOWait += c.IOWait
		all.IRQ += c.IRQ
		all.SoftIRQ += c.SoftIRQ
		all.Steal += c.Steal
	}
	return all, each
}
