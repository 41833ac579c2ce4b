package redis

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/database"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Server is one running server. It is used by one goroutine at a time: Begin,
// any number of Sample, then End.
type Server struct {
	*database.Server
	dial   database.Dial
	before *status
}

// Is says whether a process is such a server, and of which kind.
func Is(p *observe.Process) (kind string, ok bool) {
	switch {
	case p.Kernel || p.EndedIn:
	case p.Name() == "redis-server":
		return "redis", true
	case p.Name() == "valkey-server":
		return "valkey", true
	}
	return "", false
}

// New looks at a process that listens at so many sockets.
func New(kind string, p observe.Process, procRoot string, listeners int, dial database.Dial) *Server {
	return &Server{Server: database.NewServer(kind, p, procRoot, listeners), dial: dial}
}

// Begin asks the server for the first time. The result says whether its configuration
// file was too large for the budget: then the places of its settings are not known.
func (s *Server) Begin(b *budget.Budget) (tooLarge bool) {
	s.Out.Slow = &observe.SlowLog{Source: "SLOWLOG", ThresholdNS: -1}
	s.Out.Status = &observe.DatabaseStatus{}
	now := s.ask(b)
	s.before = now
	if now == nil {
		return false
	}
	s.Out.Status.Begin = figures(now)
	s.settings(b, now)
	return s.Done()
}

// ask asks once, and notes what the server did not tell.
func (s *Server) ask(b *budget.Budget) *status {
	now, err := ask(b, s.dial)
	if err != nil {
		s.Gap("status", "%s (pid %d) could not be asked: %v", s.Process.Comm, s.Out.PID, err)
		s.Out.Slow.Off = "it could not be asked: " + logtail.Printable([]byte(err.Error()), 200)
		return nil
	}
	if now.refused != "" {
		s.Out.Status.Refused = logtail.Printable([]byte(now.refused), 200)
		s.Gap("status", "%s (pid %d) does not tell about itself: %s", s.Process.Comm, s.Out.PID, now.refused)
		s.Out.Slow.Off = "it does not tell: " + s.Out.Status.Refused
		return nil
	}
	return now
}

// told are the figures of INFO that are kept.
var told = []string{"connected_clients", "blocked_clients", "maxclients", "rejected_connections", "total_connections_received", "total_commands_processed",
	"latest_fork_usec", "total_forks", "rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_enabled", "aof_delayed_fsync", "aof_pending_bio_fsync",
	"used_memory", "used_memory_rss", "maxmemory", "evicted_keys", "uptime_in_seconds", "instantaneous_ops_per_sec"}

func figures(s *status) map[string]float64 {
	out := map[string]float64{}
	for _, name := range told {
		if n, ok := s.figures[name]; ok {
			out[name] = n
		}
	}
	return out
}

// settings are as the server has them now. The place is where the
// configuration file says the same.
func (s *Server) settings(b *budget.Budget, now *status) {
	s.Out.Config = now.texts["config_file"]
	file := map[string]observe.Setting{}
	s.Config = nil
	if s.Out.Config != "" && s.Enter(b) {
		s.readFile(file, s.Out.Config, 0)
		if s.Cut() {
			clear(file)
		}
	}
	if n, ok := now.figures["maxclients"]; ok {
		s.Out.MaxConnections = placed(file, "maxclients", strconv.Itoa(int(n)), "10000")
	}
	if now.slowerThan >= -1 {
		s.Out.Slow.Threshold = placed(file, "slowlog-log-slower-than", strconv.FormatInt(now.slowerThan, 10), "10000")
		if s.Out.Slow.ThresholdNS = min(now.slowerThan, math.MaxInt64/1000) * 1000; now.slowerThan < 0 {
			s.Out.Slow.ThresholdNS, s.Out.Slow.Off = -1, "slowlog-log-slower-than is -1"
		}
	}
	for _, name := range []string{"appendfsync", "save", "io-threads"} {
		v, ok := file[name]
		if is, told := now.settings[name]; told {
			v, ok = placed(file, name, is, usual[name]), true
		}
		if ok {
			s.Set(name, v)
		}
	}
}

// usual are the values of settings that nobody set (redis.conf of Redis 7).
var usual = map[string]string{"appendfsync": "everysec", "save": "3600 1 300 100 60 10000", "io-threads": "1"}

// placed is a value as the server has it, with the place where the file has
// the same; CONFIG SET may have changed it since.
func placed(file map[string]observe.Setting, name, value, otherwise string) observe.Setting {
	if v, ok := file[name]; ok && v.Value == value {
		return v
	}
	return observe.Setting{Value: value, Default: value == otherwise}
}

// Option tells where a configuration file, or one that it includes, has a setting;
// empty where it has none, or is over the budget.
func Option(b *budget.Budget, root rootfs.Root, file, name string) observe.Setting {
	s := &Server{Server: &database.Server{Root: root.With(b), Budget: b}}
	into := map[string]observe.Setting{}
	s.readFile(into, file, 0)
	if b.Err() != nil {
		return observe.Setting{}
	}
	return into[name]
}

const maxDepth = 8

// readFile reads "name value" lines; the last one counts.
func (s *Server) readFile(into map[string]observe.Setting, name string, depth int) {
	text, _, err := s.Root.ReadFile(name, 1<<20)
	if err != nil || depth > maxDepth {
		return
	}
	if !slices.Contains(s.Config, name) {
		s.Config = append(s.Config, name)
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if s.Budget.Node() != nil {
			return
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, value = strings.ToLower(key), strings.Trim(strings.TrimSpace(value), `"`)
		switch {
		case key == "" || key[0] == '#':
		case key == "include":
			if !path.IsAbs(value) {
				value = path.Join(path.Dir(name), value)
			}
			names, err := s.Root.Glob(value)
			if err != nil {
				continue
			}
			for _, f := range names[:min(len(names), 64)] {
				s.readFile(into, f, depth+1)
			}
		default:
			into[key] = observe.Setting{Value: strings.Clone(value), File: name, Line: n}
		}
	}
}

// Sample counts the connections, given the sockets that a process has open.
func (s *Server) Sample(sockets func(pid int) (int, error)) {
	if n, err := sockets(s.Out.PID); err == nil {
		s.Count(n)
	}
}

// End asks the server again, and takes the commands that were slow since.
func (s *Server) End(b *budget.Budget, window observe.Window) database.Result {
	now := s.ask(b)
	if now == nil {
		return s.Result()
	}
	s.Out.Status.End = figures(now)
	if s.before == nil {
		s.settings(b, now) // it was too busy to answer before
	}
	last := int64(-1)
	if s.before != nil {
		last = s.before.lastID
	}
	from := window.Start.Unix()
	to := from + int64(window.Seconds) + 2
	first := int64(-1)
	for i := range now.slow {
		c := &now.slow[i]
		if c.id <= last || c.second < from || c.second > to {
			continue
		}
		if first < 0 || c.id < first {
			first = c.id
		}
		s.Add(c.entry(s.Out.PID))
	}
	// The log holds the latest 128: others may have come in between.
	if s.before != nil && first > last+1 && len(now.slow) >= 128 {
		s.Out.Slow.Lost = first - last - 1
	}
	return s.Result()
}
