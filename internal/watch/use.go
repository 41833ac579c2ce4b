package watch

import (
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// use is what the window took of the host: CPUs, memory, disks, and the course of
// the CPUs.
type use struct {
	packets *packets // looked at when softirqs take a CPU
	first   host.UseSample
	cpu     host.CPUSample // the last reading, where a span of the course begins
	course  []observe.CPUSpan
}

func (u *use) begin(s *session) error {
	var gaps []observe.Gap
	u.first, gaps = s.fs.Use()
	s.out.Gaps = append(s.out.Gaps, gaps...)
	return nil
}

// beginCourse takes the first reading of the CPUs: one that fails is a gap of begin
// already.
func (u *use) beginCourse(s *session) error {
	u.cpu, _ = s.fs.CPU()
	return nil
}

// sample adds a span to the course. A reading that fails makes the span longer.
func (u *use) sample(s *session) {
	now, err := s.fs.CPU()
	if err != nil {
		return
	}
	elapsed := s.elapsed()
	used := host.CPUBetween(u.cpu, now)
	if used.Total() > 0 && elapsed > 0 {
		u.course = append(u.course, observe.CPUSpan{Seconds: elapsed.Seconds(), Busy: used.Busy(), Idle: used.Idle + used.IOWait})
		u.packets.look(s, used.SoftIRQ/used.Total()*float64(max(s.out.Host.CPUs, 1)))
	}
	u.cpu = now
}

func (u *use) stop(s *session) {
	last, gaps := s.fs.Use()
	s.out.Gaps = append(s.out.Gaps, gaps...)
	s.out.Use = host.UseBetween(u.first, last)
	s.out.Use.Course = u.course
}
