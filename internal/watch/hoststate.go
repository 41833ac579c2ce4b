package watch

import "github.com/slowray/slowray/internal/observe"

// hostState is what is sampled of the machine besides its load.
type hostState struct {
	throttles       uint64
	now, most, cpus uint64 // sums of frequencies, kHz, and how many samples they are of
	limit           uint64
}

func (h *hostState) begin(s *session) error {
	h.throttles = s.fs.ThermalThrottles()
	return nil
}

// sample looks at the CPUs' frequency.
func (h *hostState) sample(s *session) {
	if now, most, limit := s.fs.Frequency(); now > 0 {
		h.now += now
		h.most += most
		h.limit += limit
		h.cpus++
	}
}

func (h *hostState) end(s *session) {
	st := s.fs.HostState()
	if n := h.cpus; n > 0 {
		st.CPUFreqKHz, st.CPUFreqMaxKHz, st.CPUFreqLimitKHz = h.now/n, h.most/n, h.limit/n
	}
	if now := s.fs.ThermalThrottles(); now > h.throttles {
		st.Throttled = now - h.throttles
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
