package memcached

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/database"
	"github.com/slowray/slowray/internal/sense/app/logtail"
)

// Server is one running memcached. It is used by one goroutine at a time:
// Begin, any number of Sample, then End.
type Server struct {
	*database.Server
	dial database.Dial
}

// Is says whether a process is a memcached.
func Is(p *observe.Process) bool { return !p.Kernel && !p.EndedIn && p.Name() == "memcached" }

// New looks at a process that listens at so many sockets.
func New(p observe.Process, procRoot string, listeners int, dial database.Dial) *Server {
	return &Server{Server: database.NewServer("memcached", p, procRoot, listeners), dial: dial}
}

// Begin reads the arguments and asks the server for the first time. It has no files.
func (s *Server) Begin(b *budget.Budget) (tooLarge bool) {
	s.Out.MaxConnections = option(s.Args, "-c", "--conn-limit", "1024")
	s.Set("threads", option(s.Args, "-t", "--threads", "4"))
	s.Out.Status = &observe.DatabaseStatus{}
	s.Out.Status.Begin = s.ask(b)
	return false
}

// option reads "-c 1024", "-c1024", "--conn-limit=1024", "--conn-limit 1024".
func option(args []string, short, long, otherwise string) observe.Setting {
	out := observe.Setting{Value: otherwise, Default: true}
	given := func(v string) { out = observe.Setting{Value: logtail.Printable([]byte(v), 64), File: "command line"} }
	for i, a := range args {
		name, value, ok := strings.Cut(a, "=")
		switch {
		case name == long && ok:
			given(value)
		case (a == long || a == short) && i+1 < len(args):
			given(args[i+1])
		case strings.HasPrefix(a, short) && len(a) > len(short) && !strings.HasPrefix(a, "--"):
			given(a[len(short):])
		}
	}
	return out
}

// patience is how long a server may take to answer.
const patience = 300 * time.Millisecond

const maxLine = 256 // bytes of an answer's line that are looked at

// told are the figures that are kept.
var told = map[string]bool{"curr_connections": true, "max_connections": true, "total_connections": true, "rejected_connections": true,
	"listen_disabled_num": true, "time_in_listen_disabled_us": true, "threads": true, "evictions": true, "uptime": true,
	"cmd_get": true, "get_misses": true, "limit_maxbytes": true, "bytes": true}

func (s *Server) ask(budget *budget.Budget) map[string]float64 {
	b, err := s.stats(budget)
	switch {
	case err == nil && bytes.Contains(b, []byte("Too many open connections")):
		s.Out.Status.Refused = "Too many open connections"
		s.Gap("status", "memcached (pid %d) refuses connections: it has as many as it takes", s.Out.PID)
		return nil
	case err == nil && !bytes.HasPrefix(b, []byte("STAT ")):
		err = errors.New("it does not tell about itself")
	}
	if err != nil {
		s.Gap("status", "memcached (pid %d) could not be asked: %v", s.Out.PID, err)
		return nil
	}
	return figures(budget, b)
}

// figures reads the lines "STAT name value" of an answer.
func figures(budget *budget.Budget, b []byte) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(string(b)) {
		if budget.Node() != nil {
			break
		}
		f := strings.Fields(line[:min(len(line), maxLine)])
		if len(f) == 3 && f[0] == "STAT" && told[f[1]] {
			if n, err := database.Figure(f[2]); err == nil {
				out[f[1]] = n
			}
		}
	}
	return out
}

func (s *Server) stats(budget *budget.Budget) ([]byte, error) {
	if s.dial == nil {
		return nil, errors.New("it was not asked")
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(patience, budget.TimeLeft()))
	defer cancel()
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return database.Ask(ctx, conn, "stats\r\n", 1<<20, func(b []byte) bool {
		return bytes.HasSuffix(b, []byte("END\r\n")) || bytes.HasPrefix(b, []byte("ERROR")) && bytes.HasSuffix(b, []byte("\n"))
	})
}

// Sample counts the connections, given the sockets that a process has open.
func (s *Server) Sample(sockets func(pid int) (int, error)) {
	if n, err := sockets(s.Out.PID); err == nil {
		s.Count(n)
	}
}

// End asks the server again.
func (s *Server) End(b *budget.Budget, _ observe.Window) database.Result {
	s.Out.Status.End = s.ask(b)
	return s.Result()
}
