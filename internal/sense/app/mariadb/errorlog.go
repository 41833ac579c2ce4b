package mariadb

import (
	"bytes"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
)

// Kinds of lines of the error log, observe.LogKind.Kind.
const (
	KindTooManyConnections = "too-many-connections" // a connection was refused at max_connections
	KindAbortedConnection  = "aborted-connection"   // one ended without being closed
	KindDeadlock           = "deadlock"             // innodb_print_all_deadlocks
	KindTableFull          = "table-full"
	KindDiskFull           = "disk-full"
	KindCannotFork         = "cannot-create-thread"
)

var errorKinds = []struct {
	text []byte
	kind string
}{
	{[]byte("(Too many connections)"), KindTooManyConnections},
	{[]byte("Aborted connection "), KindAbortedConnection},
	{[]byte("ransactions deadlock detected"), KindDeadlock},
	{[]byte("Disk is full writing"), KindDiskFull},
	{[]byte("is full"), KindTableFull},
	{[]byte("Can't create a new thread"), KindCannotFork},
	{[]byte("Can't create thread to handle new connection"), KindCannotFork},
}

// classify tells the kind of a line's message, "" for one of no interest. What
// a client can choose, as its name, stands in quotes before the reason.
func classify(message []byte) string {
	for _, k := range errorKinds {
		if bytes.Contains(message, k.text) {
			return k.kind
		}
	}
	return ""
}

// stamp reads the time of a line: "2026-11-21 23:59:25 0 [Warning] …" in local
// time (MariaDB), "2026-11-21T22:59:25.123456Z 0 [Warning] …" (MySQL).
func stamp(line []byte) (second int64, rest []byte, ok bool) {
	const n = len(time.DateTime)
	if len(line) < n+1 {
		return 0, nil, false
	}
	text := make([]byte, n)
	copy(text, line)
	utc := text[10] == 'T'
	if utc {
		text[10] = ' '
	}
	zone := time.Local
	if utc {
		zone = time.UTC
	}
	t, err := time.ParseInLocation(time.DateTime, string(text), zone)
	if err != nil {
		return 0, nil, false
	}
	return t.Unix(), line[n:], true
}

func (s *Server) readErrorLog(b *budget.Budget, window observe.Window) {
	clock := logtail.NewClock(window)
	scale := s.Read(b, s.errorLog, func(line []byte) {
		second, rest, ok := stamp(line)
		if !ok {
			return
		}
		if second, ok = clock.In(second); !ok {
			return
		}
		if kind := classify(rest); kind != "" {
			s.log.Add(kind, nil, second, 0, line)
		}
	})
	s.log.Settle(scale)
}
