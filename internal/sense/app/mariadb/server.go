package mariadb

import (
	"path"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/database"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
)

// Server is one running server. It is used by one goroutine at a time: Begin,
// any number of Sample, then End.
type Server struct {
	*database.Server
	dataDir  string
	errorLog *database.Log
	slowLog  *database.Log
	log      logtail.Counts
}

// Is says whether a process is such a server, and of which kind.
func Is(p *observe.Process) (kind string, ok bool) {
	switch {
	case p.Kernel || p.EndedIn:
	case p.Name() == "mariadbd":
		return "mariadb", true
	case p.Name() == "mysqld":
		return "mysql", true
	}
	return "", false
}

// New looks at a process that listens at so many sockets.
func New(kind string, p observe.Process, procRoot string, listeners int) *Server {
	return &Server{Server: database.NewServer(kind, p, procRoot, listeners)}
}

// Begin reads the options and opens the logs at their present ends. The result says
// whether the option files were too large for the budget: then nothing is known of them.
func (s *Server) Begin(b *budget.Budget) (tooLarge bool) {
	if !s.Enter(b) {
		s.Out.Slow = &observe.SlowLog{Off: "its files cannot be read"}
		return false
	}
	o := readOptions(s.Budget, s.Root, s.Args)
	if s.Cut() {
		s.Out.Slow = &observe.SlowLog{Off: "its option files were not read to their end"}
		return s.Done()
	}
	for _, p := range o.problems {
		s.Gap(p, "an option file of %s (pid %d) could not be read: %s", s.Process.Comm, s.Out.PID, p)
	}
	s.Config = o.files
	if len(o.files) > 0 {
		s.Out.Config = o.files[0]
	}
	s.Out.MaxConnections, s.Out.Reserved = o.get("max_connections", "151"), 1
	s.Set("long_query_time", o.get("long_query_time", "10"))
	s.Set("innodb_lock_wait_timeout", o.get("innodb_lock_wait_timeout", "50"))
	s.Set("innodb_buffer_pool_size", o.get("innodb_buffer_pool_size", "128M"))
	s.dataDir = o.get("datadir", "/var/lib/mysql").Value
	s.openErrorLog(o)
	s.openSlowLog(o)
	return s.Done()
}

// openErrorLog follows the error log: log_error, or what standard error is.
func (s *Server) openErrorLog(o *options) {
	name := s.Output(2)
	if v, ok := o.values["log_error"]; ok {
		if name = v.Value; name == "" {
			name = s.hostName() + ".err"
		} else if path.Ext(name) == "" {
			name += ".err"
		}
		name = path.Join(s.at(), name)
		if path.IsAbs(v.Value) {
			name = v.Value
		}
	}
	if name == "" {
		s.Gap("error log", "the error log of %s (pid %d) is no file: it goes to a journal or a collector", s.Process.Comm, s.Out.PID)
		return
	}
	s.errorLog = s.Follow(name, "error")
}

// at is where relative paths begin: the server changes to its data directory.
func (s *Server) at() string {
	if cwd := prefork.Cwd(s.ProcRoot, s.Out.PID); cwd != "" {
		return cwd
	}
	return s.dataDir
}

// hostName is what the names of logs without a name of their own begin with.
func (s *Server) hostName() string {
	text, _, err := s.Root.ReadFile("/etc/hostname", 256)
	if err != nil {
		return "localhost"
	}
	name, _, _ := strings.Cut(strings.TrimSpace(text), ".")
	return name
}

// openSlowLog follows the slow log. It may have been switched on while the
// server runs: then it has the file open.
func (s *Server) openSlowLog(o *options) {
	slow := &observe.SlowLog{Threshold: s.Out.Settings["long_query_time"]}
	s.Out.Slow = slow
	if seconds, err := database.Figure(slow.Threshold.Value); err == nil && seconds >= 0 && seconds < 1e6 {
		slow.ThresholdNS = int64(seconds * 1e9)
	}
	name := o.get("slow_query_log_file", s.hostName()+"-slow.log").Value
	if !path.IsAbs(name) {
		name = path.Join(s.at(), name)
	}
	opened := s.openedSlowLog(name)
	switch {
	case opened != "":
		name = opened
	case !on(o.get("slow_query_log", "0")):
		slow.Off = "slow_query_log is off"
		return
	case strings.Contains(strings.ToUpper(o.get("log_output", "FILE").Value), "TABLE"):
		slow.Off = "it goes to a table (log_output), which cannot be read without a password"
		return
	}
	slow.Source = name
	s.slowLog = s.Follow(name, "slow")
	slow.Off = s.slowLog.Problem()
}

// openedSlowLog is the file of the slow log among those the server has open,
// by its name; empty when it has none.
func (s *Server) openedSlowLog(name string) string {
	files, err := prefork.OpenFiles(s.ProcRoot, s.Out.PID)
	if err != nil {
		return ""
	}
	for _, f := range files {
		base := path.Base(f.Path)
		if base == path.Base(name) || strings.HasSuffix(base, "slow.log") {
			return f.Path
		}
	}
	return ""
}

// Sample counts the connections, given the sockets that a process has open.
func (s *Server) Sample(sockets func(pid int) (int, error)) {
	if n, err := sockets(s.Out.PID); err == nil {
		s.Count(n)
	}
}

// End reads what the logs grew by.
func (s *Server) End(b *budget.Budget, window observe.Window) database.Result {
	s.readErrorLog(b.Share(2), window)
	s.readSlowLog(b, window)
	s.Out.Log = s.log.Kinds()
	return s.Result()
}
