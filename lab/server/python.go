package server

import (
	"fmt"
	"strconv"
	"time"
)

// Python is how the HTTP service in Python behaves (programs/booking.py), which
// has nginx before it. The zero value answers at once, in one process.
type Python struct {
	Workers  int           // processes; 0 = 1
	Loop     bool          // an event loop with a pool of threads, not one request after the other
	Inline   bool          // … that works on requests itself
	Threaded bool          // a thread for each connection
	Hot      int           // turns of one function that a request costs
	Mixed    int           // turns of each of several functions that a request costs
	Log      int           // bytes of what is logged for a request
	Threads  int           // of the pool of an event loop; 0 = 8
	Idle     int           // threads of a pool that wait for work
	Refresh  int           // threads that read a catalogue again and again, which no request asks for
	Index    int           // … that count something
	Rest     time.Duration // … and sleep for so long after each piece
	Reload   bool          // it looks at all of its files ten times a second

	Work      time.Duration // before the answer, outside any lock
	Lock      time.Duration // before the answer, inside a lock that all requests take
	Transfers int           // of so many requests two lock two accounts, for 1 ms; 0 = none does
	Opposite  bool          // the second of the two locks them in the other order
	Asks      bool          // it asks another one, which is as Setup.Asked says, and passes on what that answers
	Retries   int           // … again and again, with longer and longer pauses
	Refuse    int           // the status that it answers with; 0 = 200
	Regex     int           // letters that it matches with a pattern which takes twice as long for each further one
	Long      int           // turns of one function
	LongEvery int           // … that one of so many requests costs
}

func (p Python) options() []string {
	var options []string
	for _, o := range []struct {
		name  string
		value int
	}{{"--workers", p.Workers}, {"--hot", p.Hot}, {"--mixed", p.Mixed}, {"--log", p.Log}, {"--idle", p.Idle}, {"--threads", p.Threads},
		{"--refresh", p.Refresh}, {"--index", p.Index}, {"--rest-us", int(p.Rest.Microseconds())},
		{"--work-us", int(p.Work.Microseconds())}, {"--lock-us", int(p.Lock.Microseconds())}, {"--transfers", p.Transfers},
		{"--long", p.Long}, {"--long-every", p.LongEvery}, {"--retries", p.Retries}, {"--refuse", p.Refuse}, {"--regex", p.Regex}} {
		if o.value != 0 {
			options = append(options, o.name, strconv.Itoa(o.value))
		}
	}
	for _, o := range []struct {
		name string
		on   bool
	}{{"--loop", p.Loop}, {"--inline", p.Inline}, {"--reload", p.Reload}, {"--threaded", p.Threaded}, {"--opposite", p.Opposite}} {
		if o.on {
			options = append(options, o.name)
		}
	}
	return options
}

// python starts the service in Python by itself.
func (s *starter) python(addr string, port int) error {
	path, err := s.program("booking.py")
	if err != nil {
		return err
	}
	args := append([]string{python, path, addr, strconv.Itoa(port)}, s.v.Python.options()...)
	if s.v.Kind == PythonApp {
		pem, err := s.tlsFile()
		if err != nil {
			return err
		}
		args = append(args, "--tls", pem)
	}
	if s.v.Python.Asks {
		asked, err := s.asked(path)
		if err != nil {
			return err
		}
		args = append(args, "--ask", asked)
	}
	if err := s.run(port, "booking", args...); err != nil {
		return fmt.Errorf("python: %w", err)
	}
	return nil
}

// asked starts the service that another one asks, and gives its address.
func (s *starter) asked(path string) (url string, err error) {
	port := s.v.BackPort + 1
	args := append([]string{python, path, "127.0.0.1", strconv.Itoa(port), "--threaded"}, s.v.Asked.options()...)
	if err := s.run(port, "asked", args...); err != nil {
		return "", fmt.Errorf("asked: %w", err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d/quota", port), nil
}

// nginxPython is nginx with the service in Python behind it.
func (s *starter) nginxPython() error {
	if err := s.python(s.v.ProxyAddr, s.v.BackPort); err != nil {
		return err
	}
	return s.front()
}
