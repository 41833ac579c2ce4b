package postgres

import (
	"path"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/database"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Server is one running postmaster. It is used by one goroutine at a time:
// Begin, any number of Sample, then End.
type Server struct {
	*database.Server
	linePrefix string
	log        *database.Log
	kinds      logtail.Counts
	sessions   sessions
	backends   map[int]int // the number of a process in the server's own pid namespace → here; nil when they are the same
}

// Is says whether a process is a postmaster: a postgres that is no child of
// another one.
func Is(p, parent *observe.Process) bool {
	return !p.Kernel && !p.EndedIn && isServer(p) && (parent == nil || !isServer(parent))
}

func isServer(p *observe.Process) bool { return p.Name() == "postgres" || p.Comm == "postmaster" }

// New looks at a process that listens at so many sockets.
func New(p observe.Process, procRoot string, listeners int) *Server {
	return &Server{Server: database.NewServer("postgresql", p, procRoot, listeners)}
}

// Begin reads the configuration and opens the log at its present end. The result says
// whether it was too large for the budget: then nothing is known of it.
func (s *Server) Begin(b *budget.Budget) (tooLarge bool) {
	s.Out.Slow = &observe.SlowLog{}
	if !s.Enter(b) {
		s.Out.Slow.Off = "its files cannot be read"
		return false
	}
	c := &config{b: s.Budget, root: s.Root, values: map[string]observe.Setting{}}
	given := &config{values: map[string]observe.Setting{}}
	given.arguments(s.Args)
	data := prefork.Cwd(s.ProcRoot, s.Out.PID) // a postmaster changes to its data directory
	main := given.get("config_file", path.Join(data, "postgresql.conf")).Value
	if !path.IsAbs(main) {
		main = path.Join(data, main)
	}
	s.Out.Config = main
	if err := c.read(main, 0); err != nil && s.Budget.Err() == nil {
		s.Gap(main, "the configuration of PostgreSQL (pid %d) cannot be read: %s", s.Out.PID, rootfs.Plain(err))
	}
	_ = c.read(path.Join(data, "postgresql.auto.conf"), 0) // there is none where ALTER SYSTEM was never used
	if s.Cut() {
		s.Out.Slow.Off = "its configuration was not read to its end"
		return s.Done()
	}
	s.Config = c.files
	c.arguments(s.Args)
	for _, p := range c.problems {
		s.Gap(p, "a part of the configuration of PostgreSQL (pid %d) cannot be read: %s", s.Out.PID, p)
	}
	s.Out.MaxConnections = c.get("max_connections", "100")
	if n, err := strconv.ParseUint(c.get("superuser_reserved_connections", "3").Value, 10, 31); err == nil {
		s.Out.Reserved = int(n)
	}
	for name, otherwise := range map[string]string{
		"log_min_duration_statement": "-1", "log_lock_waits": "off", "deadlock_timeout": "1s", "max_wal_size": "1GB",
		"checkpoint_timeout": "5min", "shared_buffers": "128MB",
	} {
		s.Set(name, c.get(name, otherwise))
	}
	s.linePrefix = c.get("log_line_prefix", "%m [%p] ").Value
	s.openLog(c, data)
	s.beginSlowLog()
	if s.Out.Slow.Off != "" {
		s.sessions.running.find(s.Budget, s.ProcRoot, s.Out.PID)
	}
	if own := prefork.Numbers(s.ProcRoot, s.Out.PID); len(own) > 1 {
		s.backends = map[int]int{}
	}
	return s.Done()
}

// backend is the process that the server's log calls pid: in a container it has
// another number here. 0 when it was not seen.
func (s *Server) backend(pid int) int {
	if s.backends == nil {
		return pid
	}
	return s.backends[pid]
}

// number learns what the server calls its children.
func (s *Server) number(children []int) {
	if s.backends == nil {
		return
	}
	children = children[:min(len(children), maxTracked)]
	known := map[int]bool{}
	for _, pid := range s.backends {
		known[pid] = true
	}
	for _, pid := range children {
		if known[pid] || len(s.backends) >= maxTracked {
			continue
		}
		if n := prefork.Numbers(s.ProcRoot, pid); len(n) > 1 {
			s.backends[n[len(n)-1]] = pid
		}
	}
}

// openLog follows the log: the collector's present file, or what standard
// error is.
func (s *Server) openLog(c *config, data string) {
	name := ""
	if on(c.get("logging_collector", "off")) {
		text, _, _ := s.Root.ReadFile(path.Join(data, "current_logfiles"), 4096)
		for line := range strings.SplitSeq(text, "\n") {
			if file, ok := strings.CutPrefix(line, "stderr "); ok {
				name = file
			}
		}
		if name != "" && !path.IsAbs(name) {
			name = path.Join(data, name)
		}
	} else {
		name = s.Output(2)
	}
	if name == "" {
		s.Gap("log", "the log of PostgreSQL (pid %d) is no file of plain text: it goes to a journal, to syslog or into CSV", s.Out.PID)
		s.Out.Slow.Off = "the log is no file of plain text"
		return
	}
	s.log = s.Follow(name, "error")
	s.Out.Slow.Source = name
	s.Out.Slow.Off = s.log.Problem()
}

func (s *Server) beginSlowLog() {
	slow := s.Out.Slow
	slow.Threshold = s.Out.Settings["log_min_duration_statement"]
	if ms, ok := milliseconds(slow.Threshold.Value); ok && ms >= 0 {
		slow.ThresholdNS = int64(ms * 1e6)
	} else if slow.ThresholdNS = -1; slow.Off == "" {
		slow.Off = "log_min_duration_statement is -1"
	}
}

// Sample reads the titles of the backends, which are the connections.
func (s *Server) Sample(func(pid int) (int, error)) {
	children, ok := prefork.Children(s.ProcRoot, s.Out.PID)
	if !ok {
		return
	}
	s.number(children)
	before := s.sessions.backends
	s.sessions.look(s.ProcRoot, children)
	n := s.sessions.backends - before
	if len(children) > maxLooks { // those that were left out are taken to be alike
		n = n * len(children) / maxLooks
	}
	s.Held(n)
}

// End reads what the log grew by.
func (s *Server) End(b *budget.Budget, window observe.Window) database.Result {
	if children, ok := prefork.Children(s.ProcRoot, s.Out.PID); ok {
		s.number(children)
	}
	s.readLog(b, window)
	s.Out.Log = s.kinds.Kinds()
	s.Out.Sessions = s.sessions.sum()
	if s.Out.Sessions != nil {
		s.Lose("titles of PostgreSQL's backends beyond 256 in a look", s.Out.Sessions.Skipped)
	}
	return s.Result()
}
