package watch

import (
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// threads follows what the threads of the serving processes do: what state they are
// in, and what they do with the CPUs over the window, so that causes can look at the
// moments of slow requests.
type threads struct {
	states  map[int]*observe.ThreadStates
	tracers map[int]int // of the processes that were seen stopped

	last  map[int]host.RunSample
	spans map[int][]observe.RunSpan
}

const (
	maxThreadProcesses = 64  // whose states one round looks at
	maxCourses         = 128 // processes that are followed
)

func newThreads() *threads {
	return &threads{states: map[int]*observe.ThreadStates{}, tracers: map[int]int{}, last: map[int]host.RunSample{}, spans: map[int][]observe.RunSpan{}}
}

// sampleStates looks at what the threads do at this moment.
func (t *threads) sampleStates(s *session) {
	for _, pid := range s.serving[:min(len(s.serving), maxThreadProcesses)] {
		st := t.states[pid]
		if st == nil {
			st = &observe.ThreadStates{}
			t.states[pid] = st
		}
		// A process that ended or may not be read simply has fewer samples.
		was := st.Stopped
		_ = s.fs.SampleThreads(pid, st)
		if st.Stopped > was && t.tracers[pid] == 0 {
			t.tracers[pid] = s.fs.Tracer(pid)
		}
	}
	// The next round begins with those that had no turn.
	if len(s.serving) > maxThreadProcesses {
		s.serving = append(s.serving[maxThreadProcesses:], s.serving[:maxThreadProcesses]...)
	}
}

// beginCourses takes the first readings.
func (t *threads) beginCourses(s *session) error {
	for _, pid := range s.serving[:min(len(s.serving), maxCourses)] {
		if now, err := s.fs.RunTimes(pid); err == nil {
			t.last[pid] = now
		}
	}
	return nil
}

// sampleCourses adds a span to each process.
func (t *threads) sampleCourses(s *session) {
	elapsed := s.elapsed()
	for pid, before := range t.last {
		now, err := s.fs.RunTimes(pid)
		if err != nil {
			delete(t.last, pid) // it ended
			continue
		}
		span := host.RunBetween(before, now)
		span.Seconds = elapsed.Seconds()
		t.spans[pid] = append(t.spans[pid], span)
		t.last[pid] = now
	}
}

// leastCourse is the share of a CPU, running or wanting to, below which the
// course of a process tells nothing.
const leastCourse = 0.02

// course is the course of a process that uses the CPUs, else nil.
func (t *threads) course(pid int) []observe.RunSpan {
	spans := t.spans[pid]
	var used float64
	for _, s := range spans {
		used += s.CPU + s.Delay
	}
	if len(spans) == 0 || used < leastCourse*spans[len(spans)-1].Seconds {
		return nil
	}
	return spans
}

// of gives a serving process what is known of its threads.
func (t *threads) of(s *session, p *observe.Process) {
	p.Course = t.course(p.PID)
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

// cpuSetOf is the file that keeps a process from some CPUs.
func (s *session) cpuSetOf(pid int) string {
	for i := range s.procs {
		if s.procs[i].PID == pid {
			return s.fs.CPUSetOf(s.procs[i].Groups, s.out.Host.CPUs)
		}
	}
	return ""
}
