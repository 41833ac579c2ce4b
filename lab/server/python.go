package server

import (
	"fmt"
	"strconv"
)

// Python is how the HTTP service in Python behaves (programs/booking.py), which
// has nginx before it. The zero value answers at once, in one process.
type Python struct {
	Workers int  // processes; 0 = 1
	Loop    bool // an event loop with a pool of threads, not one request after the other
	Inline  bool // … that works on requests itself
	Hot     int  // turns of one function that a request costs
	Mixed   int  // turns of each of several functions that a request costs
	Log     int  // bytes of what is logged for a request
	Idle    int  // threads of a pool that wait for work
	Reload  bool // it looks at all of its files ten times a second
}

func (p Python) options() []string {
	var options []string
	for _, o := range []struct {
		name  string
		value int
	}{{"--workers", p.Workers}, {"--hot", p.Hot}, {"--mixed", p.Mixed}, {"--log", p.Log}, {"--idle", p.Idle}} {
		if o.value != 0 {
			options = append(options, o.name, strconv.Itoa(o.value))
		}
	}
	for _, o := range []struct {
		name string
		on   bool
	}{{"--loop", p.Loop}, {"--inline", p.Inline}, {"--reload", p.Reload}} {
		if o.on {
			options = append(options, o.name)
		}
	}
	return options
}

// nginxPython is nginx with the service in Python behind it.
func (s *starter) nginxPython() error {
	path, err := s.program("booking.py")
	if err != nil {
		return err
	}
	args := append([]string{python, path, s.v.ProxyAddr, strconv.Itoa(s.v.BackPort)}, s.v.Python.options()...)
	if err := s.run(s.v.BackPort, "booking", args...); err != nil {
		return fmt.Errorf("python: %w", err)
	}
	return s.front()
}
