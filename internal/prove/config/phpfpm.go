package config

import (
	"fmt"
	"strconv"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/phpfpm"
	"golang.org/x/sys/unix"
)

// fpmKind: SIGUSR2 has the master end its children and execute itself again, in
// the same process and with the same sockets. Children that are at work are
// waited for no longer than process_control_timeout, which is 0 by default.
var fpmKind = kind{read: readFPM, edit: editPHPFPM, allowed: allowedFPM, generation: fpmGeneration, inForce: fpmInForce,
	signal: unix.SIGUSR2, signalName: "USR2"}

func readFPM(s *server) error {
	for _, in := range phpfpm.Discover(processOf(s.pid), "/proc") {
		if in.PID != s.pid {
			continue
		}
		if in.Begin(reading()) {
			in.Close()
			return s.tooLarge()
		}
		out, _, _ := in.End(reading(), observe.Window{}, nil) // closes its logs
		s.reader, s.files = in, in.ConfigFiles()
		s.testArgs = []string{s.binary(), "-t", "-y", out.Config}
		if s.uid == 0 {
			s.testArgs = append(s.testArgs, "-R") // it may have been started so; its title does not tell
		}
		s.note = "requests under way are cut off after process_control_timeout, 0 by default"
		return nil
	}
	return fmt.Errorf("pid %d is no master of php-fpm", s.pid)
}

func fpmGeneration(s *server) (generation, error) {
	var all []int
	for _, pids := range s.reader.(*phpfpm.Instance).Children() {
		all = append(all, pids...)
	}
	g := generation{Workers: started(all)}
	g.Mark, g.SinceNS = sharedMemory(s.pid)
	if g.Mark == "" || g.SinceNS == 0 {
		return g, fmt.Errorf("php-fpm (pid %d) cannot be seen to have read its configuration", s.pid)
	}
	return g, nil
}

// allowedFPM: an inherited socket is used as it is (fpm_sockets.c,
// fpm_socket_af_inet_listening_socket: no second listen()).
func allowedFPM(c *cause.Change, s *server, _ edit) error {
	switch c.Name {
	case "listen.backlog":
		return fmt.Errorf("php-fpm does not take a changed listen.backlog over when it reloads, only when it is started: set it on the live socket (a change of kind %q)", cause.ChangeBacklog)
	case "listen", "listen.owner", "listen.group", "listen.mode", "rlimit_files", "process.max", "daemonize", "pid":
		return fmt.Errorf("%s of php-fpm is not changed while it runs", c.Name)
	}
	return s.replaced()
}

// fpmInForce: it has executed itself, and its pools have their children.
func fpmInForce(s *server, before, now generation) bool {
	if now.Mark == before.Mark || !gone(before.Workers, now.Workers) {
		return false
	}
	in := s.reader.(*phpfpm.Instance)
	children := in.Children()
	for _, p := range in.Pools() {
		n, _ := strconv.Atoi(p.MaxChildren.Value)
		switch have := len(children[p.Name]); p.PM.Value {
		case "static":
			if have < n {
				return false
			}
		case "dynamic":
			if have == 0 {
				return false
			}
		}
	}
	return true
}
