package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/app/haproxy"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"golang.org/x/sys/unix"
)

// haproxyKind: SIGUSR2 has the master of master-worker mode execute itself and
// start another worker, which takes the sockets over; the old one finishes the
// connections it has.
var haproxyKind = kind{read: readHAProxy, edit: editHAProxy, allowed: allowedHAProxy, generation: haproxyGeneration, inForce: haproxyInForce,
	signal: unix.SIGUSR2, signalName: "USR2"}

func readHAProxy(s *server) error {
	in, err := s.begin(haproxy.Discover(processOf(s.pid), "/proc"))
	if err != nil {
		return err
	}
	s.testArgs = []string{path.Base(s.binary()), "-c"}
	args := in.Args()
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-sf" || a == "-st": // pids follow
			return nil
		case a == "-x" || a == "-p":
			i++
		case slices.Contains([]string{"-W", "-Ws", "-D", "-d", "-db", "-q", "-V"}, a) || strings.HasPrefix(a, "-S"):
			if a == "-S" {
				i++
			}
		default:
			s.testArgs = append(s.testArgs, a)
		}
	}
	return nil
}

func haproxyGeneration(s *server) (generation, error) {
	g := generation{Workers: started(s.reader.(*pool.Instance).Children())}
	var newest uint64
	for _, t := range g.Workers {
		newest = max(newest, t)
	}
	if newest == 0 {
		return g, fmt.Errorf("haproxy (pid %d) has no worker processes: without master-worker mode (-W) it is not reloaded by a signal", s.pid)
	}
	g.SinceNS = unixNS(newest)
	return g, nil
}

// allowedHAProxy: a worker does not listen again on a socket that it takes over.
func allowedHAProxy(c *cause.Change, s *server, _ edit) error {
	switch c.Name {
	case "backlog", "bind backlog":
		return fmt.Errorf("haproxy does not take a changed backlog over when it reloads: set it on the live socket (a change of kind %q)", cause.ChangeBacklog)
	case "master-worker", "nbproc", "daemon", "user", "group", "uid", "gid", "chroot", "pidfile":
		return fmt.Errorf("%s of haproxy is not changed while it runs", c.Name)
	}
	return s.replaced()
}

// settling is how long a new worker must have lived: one that fails ends at once.
const settling = 100 * time.Millisecond

func haproxyInForce(_ *server, before, now generation) bool {
	for pid, t := range now.Workers {
		if before.Workers[pid] != t && time.Now().UnixNano() > unixNS(t)+settling.Nanoseconds() {
			return true
		}
	}
	return false
}
