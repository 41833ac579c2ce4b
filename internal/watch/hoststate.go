package watch

import "github.com/slowray/slowray/internal/observe"

// hostState is what is sampled of the machine besides its load.
type hostState struct {
	throttles       uint64
	now, most, cpus uint64 // sums of frequencies, kHz, and how many samples they are of
	limit           uint64
}

func (s *session) beginHostState() { s.state.throttles = s.fs.ThermalThrottles() }

// sampleHostState looks at the CPUs' frequency.
func (s *session) sampleHostState() {
	if now, most, limit := s.fs.Frequency(); now > 0 {
		s.state.now += now
		s.state.most += most
		s.state.limit += limit
		s.state.cpus++
	}
}

func (s *session) endHostState() {
	st := s.fs.HostState()
	if n := s.state.cpus; n > 0 {
		st.CPUFreqKHz, st.CPUFreqMaxKHz, st.CPUFreqLimitKHz = s.state.now/n, s.state.most/n, s.state.limit/n
	}
	if now := s.fs.ThermalThrottles(); now > s.state.throttles {
		st.Throttled = now - s.state.throttles
	}
	s.out.State = st
	s.endWritten()
}

// busyWriter is the CPUs that a process must have used to have its files looked
// at.
const busyWriter = 0.2

// endWritten finds the largest file that busy servers write.
func (s *session) endWritten() {
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		if p.States == nil || p.EndedIn || p.CPUSeconds() < busyWriter*s.out.Window.Seconds {
			continue
		}
		if f, ok := s.fs.LargestWritten(p.PID); ok {
			p.Writes = []observe.WrittenFile{f}
		}
	}
}
