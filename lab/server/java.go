package server

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// Java is how the HTTP service in Java behaves (programs/Booking.java). The zero
// value answers at once.
type Java struct {
	Work      time.Duration // before the answer, outside any lock
	Lock      time.Duration // before the answer, inside a lock that all requests take
	Transfers int           // of so many requests two lock two accounts, for 1 ms; 0 = none does
	Opposite  bool          // the second of the two locks them in the other order
	Pool      int           // threads that wait for work which never comes
	Fixed     int           // threads of an executor for all requests; 0 = as many as it takes
	Own       int           // threads of its own in place of an executor, which take connections from a queue
	Asks      bool          // it asks a service in Python, which is as Setup.Asked says
	Garbage   int           // bytes that a request leaves behind
	Live      int           // MB that are never given back
	Hot       int           // turns of one function that a request costs
	HeapMB    int           // most that it may use; 0 = 256
	Endless   bool          // it collects for as long as it takes, in place of an OutOfMemoryError
}

// java compiles the service in Java, and starts it.
func (s *starter) java() error {
	source, err := s.program("Booking.java")
	if err != nil {
		return err
	}
	if _, err := s.box.Server.Output(s.ctx, "javac", "-d", filepath.Dir(source), source); err != nil {
		return fmt.Errorf("javac: %w", err)
	}
	j := s.v.Java
	heap := j.HeapMB
	if heap == 0 {
		heap = 256
	}
	collector := []string{"-XX:+UseG1GC"}
	if j.Endless {
		collector = []string{"-XX:+UseParallelGC", "-XX:-UseGCOverheadLimit"}
	}
	args := append([]string{"java", fmt.Sprintf("-Xmx%dm", heap)}, collector...)
	args = append(args,
		// Its two writes of an answer would wait for delayed acknowledgements.
		"-Dsun.net.httpserver.nodelay=true", "-cp", filepath.Dir(source), "Booking", s.v.ServerAddr, strconv.Itoa(s.v.FrontPort))
	opposite := 0
	if j.Opposite {
		opposite = 1
	}
	for _, o := range []struct {
		name  string
		value int
	}{
		{"--work-us", int(j.Work.Microseconds())}, {"--lock-us", int(j.Lock.Microseconds())}, {"--transfers", j.Transfers}, {"--opposite", opposite},
		{"--pool", j.Pool}, {"--fixed", j.Fixed}, {"--own", j.Own}, {"--garbage", j.Garbage}, {"--live", j.Live}, {"--hot", j.Hot},
	} {
		if o.value != 0 {
			args = append(args, o.name, strconv.Itoa(o.value))
		}
	}
	if j.Asks {
		path, err := s.program("booking.py")
		if err != nil {
			return err
		}
		asked, err := s.asked(path)
		if err != nil {
			return err
		}
		args = append(args, "--ask", asked)
	}
	if err := s.run(s.v.FrontPort, "booking", args...); err != nil {
		return fmt.Errorf("java: %w", err)
	}
	return nil
}
