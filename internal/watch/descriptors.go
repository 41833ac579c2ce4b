package watch

// descriptors follows how many files the serving processes have open.
type descriptors struct {
	peak, limit map[int]int // by process
}

func (d *descriptors) begin(s *session) error {
	d.peak, d.limit = map[int]int{}, map[int]int{}
	for i := range s.procs {
		d.limit[s.procs[i].PID] = s.procs[i].FDLimit
	}
	return nil
}

func (d *descriptors) sample(s *session) {
	for _, pid := range s.serving {
		if n, err := s.fs.FDCount(pid); err == nil {
			d.peak[pid] = max(d.peak[pid], n)
		}
	}
}

// short says whether a server has opened most of the files that it may.
func (d *descriptors) short() bool {
	for pid, most := range d.peak {
		if limit := d.limit[pid]; limit > 0 && float64(most) >= nearlyFull*float64(limit) {
			return true
		}
	}
	return false
}
