package cause

// fullSpells is the parts of a window in which the CPUs were full, where they are few.
type fullSpells struct {
	seconds   float64
	all, idle float64    // CPU seconds in them, and the share that was idle
	servers   threadTime // of the servers, in them
	slow      float64    // share of the slowest requests' time that passed in them, or next to them
}

// fullSpells adds up the spans in which the CPUs were full; false where the slow requests
// are slow at other times too.
func (v *View) fullSpells() (s fullSpells, ok bool) {
	course := v.Use.Course
	full := make([]bool, len(course))
	var idle float64
	begin := 0.0
	for i, span := range course {
		if full[i] = ratio(span.Idle, span.Busy+span.Idle) < idleWhenFull; full[i] {
			s.seconds += span.Seconds - begin
			s.all += span.Busy + span.Idle
			idle += span.Idle
		}
		begin = span.Seconds
	}
	s.idle = ratio(idle, s.all)
	// at is the part of a time, in s of the window, that was full, or next to that.
	at := func(from, to float64, near bool) (both float64) {
		begin := 0.0
		for i, span := range course {
			if full[i] || near && (i > 0 && full[i-1] || i+1 < len(full) && full[i+1]) {
				both += max(min(to, span.Seconds)-max(from, begin), 0)
			}
			begin = span.Seconds
		}
		return both
	}
	for i := range v.Processes {
		if p := &v.Processes[i]; v.Serving(p.PID) {
			begin := 0.0
			for _, span := range p.Course {
				share := ratio(at(begin, span.Seconds, false), span.Seconds-begin)
				s.servers.cpu += share * span.CPU
				s.servers.delay += share * span.Delay
				begin = span.Seconds
			}
		}
	}
	var slow, within float64
	for _, l := range v.fronts {
		least := slowerThan * float64(l.Total.Quantile(0.5))
		for j := range l.Slowest {
			if q := &l.Slowest[j]; float64(q.TotalNS) >= least {
				from := float64(q.StartNS-v.Window.Start.UnixNano()) / 1e9
				slow += float64(q.TotalNS) / 1e9
				within += at(from, from+float64(q.TotalNS)/1e9, true)
			}
		}
	}
	s.slow = ratio(within, slow)
	return s, s.all > 0 && s.slow >= burstSlow && s.seconds <= burstShare*v.Window.Seconds
}
