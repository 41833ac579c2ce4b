package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/app/phpfpm"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/app/uwsgi"
	"golang.org/x/sys/unix"
)

// uwsgiKind: SIGHUP has the master wait for the requests under way (reload-mercy)
// and execute itself again, in the same process and with the same sockets, which
// do not listen again. New connections wait in the queue meanwhile. It has no test
// of its configuration: only numbers that are written there are raised.
var uwsgiKind = kind{read: readUWSGI, edit: editUWSGI, allowed: allowedUWSGI, generation: uwsgiGeneration, inForce: uwsgiInForce,
	signal: unix.SIGHUP, signalName: "HUP"}

func readUWSGI(s *server) error {
	in, err := s.begin(uwsgi.Discover(processOf(s.pid), "/proc"))
	if err != nil {
		return err
	}
	if len(in.Children()) == 0 {
		return fmt.Errorf("uwsgi (pid %d) runs without a master: it is not reloaded by a signal", s.pid)
	}
	s.note = "new connections wait until the requests under way are done"
	return nil
}

func uwsgiGeneration(s *server) (generation, error) {
	g := generation{Workers: started(s.reader.(*pool.Instance).Children())}
	if g.Mark, g.SinceNS = sharedMemory(s.pid); g.Mark == "" || g.SinceNS == 0 {
		return g, fmt.Errorf("uwsgi (pid %d) cannot be seen to have read its configuration", s.pid)
	}
	return g, nil
}

// uwsgiNumbers are the settings that are changed.
var uwsgiNumbers = []string{"processes", "workers", "threads", "harakiri", "max-requests"}

func allowedUWSGI(c *cause.Change, s *server, e edit) error {
	old, err1 := strconv.Atoi(e.was)
	value, err2 := strconv.Atoi(c.Value)
	switch {
	case !slices.Contains(uwsgiNumbers, c.Name):
		return fmt.Errorf("%s of uwsgi is not changed while it runs: it has no test of its configuration, and would end if it did not like it", c.Name)
	case err1 != nil || err2 != nil || value < old:
		return fmt.Errorf("%s of uwsgi is only raised, from a number that is written in its file to another: it has no test of its configuration", c.Name)
	}
	return s.replaced()
}

func uwsgiInForce(s *server, before, now generation) bool {
	if now.Mark == before.Mark || !gone(before.Workers, now.Workers) {
		return false
	}
	for _, p := range s.reader.(*pool.Instance).Out.Pools {
		if n, err := strconv.Atoi(p.Setting.Value); err == nil && p.Knob == "processes" && len(now.Workers) < n {
			return false
		}
	}
	return len(now.Workers) > 0
}

// editUWSGI sets an option in the text of an .ini file of uWSGI. What follows the
// "=" is the value, to the end of the line.
func editUWSGI(text string, p place) (edit, error) {
	var read []phpfpm.Line
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if key == "workers" && p.name == "processes" {
			key = p.name
		}
		switch {
		case line == "" || line[0] == ';' || line[0] == '#':
		case line[0] == '[':
			read = append(read, phpfpm.Line{Section: strings.Trim(line, "[] "), Number: n})
		default:
			read = append(read, phpfpm.Line{Key: key, Value: strings.TrimSpace(value), Number: n, Broken: !ok || key == ""})
		}
	}
	return editINI(text, p, read, func(s string) (from, to int) {
		body := strings.TrimRight(s, " \t\r\n")
		from = len(body) - len(strings.TrimLeft(body, " \t"))
		return from, max(from, len(body))
	})
}
