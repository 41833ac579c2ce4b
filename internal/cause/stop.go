package cause

// stepsPerLook is how many steps of judging pass between two looks at whether it
// was ended: a look at a clock costs as much as some ten steps.
const stepsPerLook = 64

// Stopped is what a View panics with where judging was ended in the middle of a
// check: a check returns what it came to, and half of one is worth nothing. Who
// set the View's stop recovers from it.
type Stopped struct{ Err error }

// stopper ends what is done with a View. Whatever looks at one of many things
// takes a step: the look-ups of the View do, and so must loops without one.
type stopper struct {
	stop  func() error
	steps int
}

// Step panics with Stopped once judging was ended.
func (s *stopper) Step() {
	if s.steps++; s.steps%stepsPerLook != 0 || s.stop == nil {
		return
	}
	if err := s.stop(); err != nil {
		panic(Stopped{err})
	}
}
