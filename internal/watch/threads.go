package watch

import (
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// courses follow what the threads of the serving processes do with the CPUs
// over the window, so that causes can look at the moments of slow requests.
type courses struct {
	last  map[int]host.RunSample
	spans map[int][]observe.RunSpan
	lost  int64 // readings that failed while the process was there
}

// maxCourses bounds the processes that are followed.
const maxCourses = 128

// begin takes the first readings.
func (c *courses) begin(fs host.FS, pids []int) {
	c.last = map[int]host.RunSample{}
	c.spans = map[int][]observe.RunSpan{}
	for _, pid := range pids[:min(len(pids), maxCourses)] {
		if s, err := fs.RunTimes(pid); err == nil {
			c.last[pid] = s
		} else {
			c.lost++
		}
	}
}

// sample adds a span to each process.
func (c *courses) sample(fs host.FS, elapsed time.Duration) {
	for pid, before := range c.last {
		now, err := fs.RunTimes(pid)
		if err != nil {
			delete(c.last, pid) // it ended
			continue
		}
		span := host.RunBetween(before, now)
		span.Seconds = elapsed.Seconds()
		c.spans[pid] = append(c.spans[pid], span)
		c.last[pid] = now
	}
}

// leastCourse is the share of a CPU, running or wanting to, below which the
// course of a process tells nothing.
const leastCourse = 0.02

// of is the course of a process that uses the CPUs, else nil.
func (c *courses) of(pid int) []observe.RunSpan {
	spans := c.spans[pid]
	var used float64
	for _, s := range spans {
		used += s.CPU + s.Delay
	}
	if len(spans) == 0 || used < leastCourse*spans[len(spans)-1].Seconds {
		return nil
	}
	return spans
}

// endThreads gives a serving process what is known of its threads.
func (s *session) endThreads(p *observe.Process) {
	p.Course = s.courses.of(p.PID)
	p.Exe, p.Go = s.fs.Exe(p.PID), s.fs.IsGo(p.PID)
	if list, n := s.fs.AllowedCPUs(p.PID); n > 0 && n < s.out.Host.CPUs {
		p.CPUs, p.CPUSet = list, s.cpuSetOf(p.PID)
	}
	for i := range p.Busiest {
		if comm := s.fs.ThreadComm(p.PID, p.Busiest[i].TID); comm != p.Comm {
			p.Busiest[i].Comm = comm
		}
	}
}
