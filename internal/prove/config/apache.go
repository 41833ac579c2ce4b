package config

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/apache"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"golang.org/x/sys/unix"
)

// apacheKind: SIGUSR1 is a graceful restart. The master reads its configuration
// and starts other children; the old ones finish the requests they have in hand.
var apacheKind = kind{read: readApache, edit: editApache, allowed: allowedApache, generation: apacheGeneration, inForce: apacheInForce,
	signal: unix.SIGUSR1, signalName: "USR1"}

// begin has a reader read the configuration of the one server that it found.
func (s *server) begin(found []*pool.Instance) (*pool.Instance, error) {
	for _, in := range found {
		if in.PID != s.pid {
			continue
		}
		in.Silent = true
		if in.Begin(reading()) {
			in.Close()
			return nil, s.tooLarge()
		}
		in.End(reading(), observe.Window{}) // closes its logs
		s.reader, s.files = in, in.ConfigFiles()
		return in, nil
	}
	return nil, fmt.Errorf("pid %d is no master of %s", s.pid, s.name)
}

func readApache(s *server) error {
	in, err := s.begin(apache.Discover(processOf(s.pid), "/proc"))
	if err != nil {
		return err
	}
	s.testArgs = []string{path.Base(s.binary())}
	args := in.Args()
	for i := 1; i < len(args); i++ {
		switch {
		case args[i] == "-k" && i+1 < len(args):
			i++
		case args[i] == "-X" || strings.HasPrefix(args[i], "-k"):
		default:
			s.testArgs = append(s.testArgs, args[i])
		}
	}
	s.testArgs = append(s.testArgs, "-t")
	return nil
}

// apacheGeneration: the master makes the pipe by which it ends its children anew
// whenever it has read its configuration (ap_mpm_pod_open, ap_mpm_podx_open).
func apacheGeneration(s *server) (generation, error) {
	g := generation{Workers: started(s.reader.(*pool.Instance).Children())}
	if g.Mark, g.SinceNS = madePipes(s.pid); g.Mark == "" {
		return g, fmt.Errorf("apache (pid %d) cannot be seen to have read its configuration", s.pid)
	}
	return g, nil
}

// allowedApache: these keep the value of the start over a graceful restart.
func allowedApache(c *cause.Change, s *server, _ edit) error {
	switch strings.ToLower(c.Name) {
	case "serverlimit", "threadlimit":
		return fmt.Errorf("apache takes a changed %s over only when it is started, not when it reloads", c.Name)
	case "listenbacklog":
		return fmt.Errorf("apache does not take a changed ListenBacklog over when it reloads, only when it is started: set it on the live socket (a change of kind %q)", cause.ChangeBacklog)
	case "user", "group", "pidfile", "listen":
		return fmt.Errorf("%s of apache is not changed while it runs", c.Name)
	case "maxrequestworkers", "maxclients":
		n, err := strconv.Atoi(c.Value)
		if most := ceiling(s.reader.(*pool.Instance)); err == nil && most > 0 && n > most {
			return fmt.Errorf("apache has room for %d workers (ServerLimit × ThreadsPerChild) until it is started again: %s %s would be cut to that", most, c.Name, c.Value)
		}
	}
	return nil
}

// ceiling is the most workers that there is room for; 0 where it is not known.
func ceiling(in *pool.Instance) int {
	if len(in.Out.Pools) == 0 {
		return 0
	}
	return in.Out.Pools[0].Ceiling
}

func apacheInForce(_ *server, before, now generation) bool {
	return now.Mark != before.Mark && hasNew(before.Workers, now.Workers)
}

// hasNew says that there is a worker that was not there before.
func hasNew(before, now map[int]uint64) bool {
	for pid, t := range now {
		if before[pid] != t {
			return true
		}
	}
	return false
}
