package config

import (
	"fmt"
	"path"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/nginx"
	"golang.org/x/sys/unix"
)

// nginxKind: SIGHUP has the master read its configuration, listen again on the
// sockets that it has (with a changed backlog), and start other workers; the old
// ones finish the requests they have in hand.
var nginxKind = kind{read: readNginx, edit: editNginx, allowed: allowedNginx, generation: nginxGeneration, inForce: nginxInForce,
	signal: unix.SIGHUP, signalName: "HUP"}

func readNginx(s *server) error {
	for _, in := range nginx.Discover(processOf(s.pid), "/proc") {
		if in.PID != s.pid {
			continue
		}
		if in.Single() {
			return fmt.Errorf("nginx (pid %d) runs without a master (master_process off): it is not reloaded by a signal", s.pid)
		}
		if in.Begin(reading()) {
			in.Close()
			return s.tooLarge()
		}
		out, _, _ := in.End(reading(), observe.Window{}) // closes its logs
		s.reader, s.files = in, in.ConfigFiles()
		if len(s.files) > 0 && out.Config != s.files[0] {
			return fmt.Errorf("the configuration of nginx (pid %d) could not be read", s.pid)
		}
		s.testArgs = append([]string{path.Base(s.binary()), "-t", "-q"}, in.Options()...)
		return nil
	}
	return fmt.Errorf("pid %d is no master of nginx", s.pid)
}

func nginxGeneration(s *server) (generation, error) {
	workers := started(s.reader.(*nginx.Instance).CurrentWorkers())
	if len(workers) == 0 {
		return generation{}, fmt.Errorf("nginx (pid %d) has no workers", s.pid)
	}
	// A reload replaces all of them and a crash one: the oldest tells.
	return generation{SinceNS: unixNS(oldest(workers)), Workers: workers}, nil
}

// allowedNginx: what is bound when the master starts, or belongs to a module that
// was not loaded, is found by the server's own test.
func allowedNginx(*cause.Change, *server, edit) error { return nil }

func nginxInForce(_ *server, before, now generation) bool {
	return len(now.Workers) > 0 && gone(before.Workers, now.Workers)
}
