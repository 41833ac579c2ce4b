package database

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/slowlog"
)

// MaxLogBytes is how much of a log is read.
const MaxLogBytes = 64 << 20

// maxUsers is how much of a list of users is read, bytes.
const maxUsers = 64 << 10

// maxGaps bounds what is reported for a server that could not be read.
const maxGaps = 64

// MaxEntries bounds how many entries of a slow log are kept.
const MaxEntries = 10_000

// Dial connects to the server where it listens, inside its own network
// namespace. It is nil where nobody is to be asked.
type Dial func(ctx context.Context) (net.Conn, error)

// Result is what a server's reader found over the window. The entries of its
// slow log are not yet joined with requests.
type Result struct {
	Database observe.Database
	Entries  []slowlog.Entry
	Gaps     []observe.Gap
	Losses   []observe.Loss
	Config   []string // the files that it is configured by, inside its root
}

// Server is one server process over a window.
type Server struct {
	Out      observe.Database
	Process  observe.Process
	Args     []string    // as it was started, without the program
	Root     rootfs.Root // while Begin reads the configuration
	ProcRoot string
	Budget   *budget.Budget // of the configuration, while Begin reads it
	Config   []string       // the files that it is configured by, inside its root

	all       *budget.Budget // of Begin or End
	logRoot   rootfs.Root
	listeners int // sockets it listens at
	held      int // sum over the samples
	gaps      []observe.Gap
	losses    []observe.Loss
	entries   []slowlog.Entry
	dropped   int64
	follows   []*Log
}

// NewServer begins to look at a process that listens at so many sockets.
func NewServer(kind string, p observe.Process, procRoot string, listeners int) *Server {
	s := &Server{Process: p, ProcRoot: procRoot, listeners: listeners,
		Out: observe.Database{Kind: kind, PID: p.PID, NetNS: p.NetNS, Container: p.Container}}
	if args := prefork.Args(procRoot, p.PID); len(args) > 1 {
		s.Args = args[1:]
	}
	return s
}

// Enter finds the root directory that the server's paths are relative to, which is read
// within b, the configuration within half of it; false where its files cannot be read at
// all.
func (s *Server) Enter(b *budget.Budget) bool {
	s.all, s.Budget = b, b.Share(2)
	root, text, err := prefork.Root(s.ProcRoot, s.Process, b)
	s.Root, s.logRoot, s.Out.Root = root.With(s.Budget), root, text
	if err == nil {
		s.findUser()
		return true
	}
	s.Gap(fmt.Sprintf("pid %d", s.Out.PID), "the root directory of %s (pid %d) cannot be entered: %s", s.Process.Comm, s.Out.PID, rootfs.Plain(err))
	return s.Process.Container == ""
}

// findUser says who the server runs as, by its own list of users.
func (s *Server) findUser() {
	_, uid, ok := prefork.User(s.ProcRoot, s.Out.PID)
	if !ok {
		return
	}
	users, _, err := s.Root.ReadFile("/etc/passwd", maxUsers)
	if err != nil {
		return
	}
	for line := range strings.Lines(users) {
		if f := strings.Split(line, ":"); len(f) > 2 && f[2] == strconv.Itoa(int(uid)) {
			s.Out.User = strings.Clone(logtail.Printable([]byte(f[0]), 64))
			return
		}
	}
}

// Cut says that the configuration was not read to its end, and notes it: what stands
// there may be what counts.
func (s *Server) Cut() bool {
	if s.Budget == nil {
		return false
	}
	err := s.Budget.Err()
	if err == nil {
		return false
	}
	s.Gap("configuration", "the configuration of %s (pid %d) was not read to its end: %s", s.Process.Comm, s.Out.PID, err)
	return true
}

// Done drops what was read; it ends a Begin. The result says whether the configuration
// was larger than the budget has room for.
func (s *Server) Done() (tooLarge bool) {
	tooLarge = s.Cut() && s.Budget.Own()
	s.Root, s.logRoot = rootfs.Root{}, rootfs.Root{}
	return tooLarge
}

// Close releases a server that is not followed to its End.
func (s *Server) Close() {
	for _, l := range s.follows {
		if l.tail != nil {
			l.tail.Close()
		}
	}
}

// Gap notes what could not be read of this server, once for each subject.
func (s *Server) Gap(subject, format string, args ...any) {
	if len(s.gaps) == maxGaps {
		return
	}
	if slices.ContainsFunc(s.gaps, func(g observe.Gap) bool { return g.Subject == subject }) {
		return
	}
	s.gaps = append(s.gaps, observe.Gap{Kind: observe.KindDatabases, NetNS: s.Process.NetNS, Subject: subject, Partial: true,
		Because: logtail.Printable(fmt.Appendf(nil, format, args...), 512)})
}

// Lose counts what was left out.
func (s *Server) Lose(what string, n int64) {
	if n > 0 {
		s.losses = append(s.losses, observe.Loss{What: what, Count: n})
	}
}

// Set gives a setting of interest its value.
func (s *Server) Set(name string, v observe.Setting) {
	if s.Out.Settings == nil {
		s.Out.Settings = map[string]observe.Setting{}
	}
	v.Value = logtail.Printable([]byte(v.Value), 256)
	s.Out.Settings[name] = v
}

// Count adds a sample of the connections held, given the sockets that the
// process has open, those it listens at among them.
func (s *Server) Count(sockets int) { s.Held(max(sockets-s.listeners, 0)) }

// Held adds a sample of the connections held.
func (s *Server) Held(n int) {
	s.Out.Samples++
	s.held += n
	s.Out.ConnectionsPeak = max(s.Out.ConnectionsPeak, n)
}

// Add keeps an entry of the slow log.
func (s *Server) Add(e slowlog.Entry) {
	if len(s.entries) >= MaxEntries {
		s.dropped++
		return
	}
	s.entries = append(s.entries, e)
}

// Result gives all that was found.
func (s *Server) Result() Result {
	if s.Out.Samples > 0 {
		s.Out.ConnectionsMean = float64(s.held) / float64(s.Out.Samples)
	}
	s.Lose(fmt.Sprintf("entries beyond %d in the slow log of %s (pid %d)", MaxEntries, s.Process.Comm, s.Out.PID), s.dropped)
	return Result{Database: s.Out, Entries: s.entries, Gaps: s.gaps, Losses: s.losses, Config: s.Config}
}

// Output is the file that a descriptor of the process leads to, as the process
// sees it: what a server writes to its standard output and error. Empty when it
// is no file, as a pipe to a log collector.
func (s *Server) Output(fd int) string {
	link := filepath.Join(s.ProcRoot, strconv.Itoa(s.Out.PID), "fd", strconv.Itoa(fd))
	name, err := os.Readlink(link)
	if err != nil || !path.IsAbs(name) || strings.HasPrefix(name, "/dev/") || strings.HasSuffix(name, " (deleted)") {
		return ""
	}
	return name
}

// Log is a log that is followed over the window.
type Log struct {
	tail *logtail.Tail
	file observe.LogFile
}

// Follow opens a log at its present end. One that cannot be followed says why
// when it is read.
func (s *Server) Follow(name, what string) *Log {
	l := &Log{file: observe.LogFile{Path: name, What: what}}
	tail, err := logtail.Open(s.logRoot, name)
	l.tail, l.file.Problem = tail, logtail.Reason(err)
	s.follows = append(s.follows, l)
	return l
}

// Read gives each line that was written since, and how many times a line
// counts where only a part was read.
func (s *Server) Read(b *budget.Budget, l *Log, line func([]byte)) (scale float64) {
	if l == nil {
		return 1
	}
	if l.tail == nil {
		s.Out.Logs = append(s.Out.Logs, l.file)
		return 1
	}
	stats, err := l.tail.Read(b, MaxLogBytes, line)
	if err != nil {
		stats.Notes = append(stats.Notes, logtail.Reason(err))
	}
	s.Lose("bytes of "+l.file.Path+" not read", max(0, stats.GrownBytes-stats.ReadBytes))
	s.Out.Logs = append(s.Out.Logs, stats.LogFile(l.file.Path, l.file.What))
	return stats.Scale
}

// Problem says why a log could not be opened; empty when it could.
func (l *Log) Problem() string {
	if l == nil {
		return ""
	}
	return l.file.Problem
}

// Ask sends one request for what a server tells about itself, and gives all
// that it answers until done says that it is complete, at most max bytes.
func Ask(ctx context.Context, conn net.Conn, request string, max int, done func([]byte) bool) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	// A server that refuses may have closed already, and what it said is there.
	_, werr := conn.Write([]byte(request))
	var answer []byte
	buf := make([]byte, 16<<10)
	for !done(answer) {
		if len(answer) >= max {
			return answer, errors.New("its answer does not end")
		}
		n, err := conn.Read(buf)
		answer = append(answer, buf[:n]...)
		if err != nil {
			if len(answer) > 0 {
				return answer, nil
			}
			return nil, errors.Join(werr, err)
		}
	}
	return answer, nil
}
