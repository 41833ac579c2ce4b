package postgres

import (
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/slowlog"
)

// Kinds of lines of the log, observe.LogKind.Kind. In brackets: its Number.
const (
	KindTooManyClients      = "too-many-clients"     // a connection was refused at max_connections
	KindStillWaiting        = "still-waiting"        // for a lock, log_lock_waits [ms]
	KindDeadlock            = "deadlock"             // one of its sessions was cancelled
	KindLockTimeout         = "lock-timeout"         // lock_timeout, statement_timeout
	KindStatementTimeout    = "statement-timeout"    // statement_timeout
	KindCheckpointsFrequent = "checkpoints-frequent" // max_wal_size is reached sooner than checkpoint_warning [seconds apart]
	KindOutOfMemory         = "out-of-memory"
	KindCannotFork          = "cannot-fork"
	KindDiskFull            = "disk-full"
	KindRecovery            = "recovery" // a backend crashed, and all others were ended
)

// classify tells the kind of a message, "" for one of no interest.
func classify(severity, m string) (kind string, figure int) {
	switch severity {
	case "FATAL":
		switch {
		case strings.HasPrefix(m, "sorry, too many clients already"), strings.HasPrefix(m, "remaining connection slots are reserved"),
			strings.HasPrefix(m, "too many connections for "), strings.HasPrefix(m, "number of requested standby connections"):
			return KindTooManyClients, 0
		}
	case "ERROR":
		switch {
		case strings.HasPrefix(m, "deadlock detected"):
			return KindDeadlock, 0
		case strings.HasPrefix(m, "canceling statement due to lock timeout"):
			return KindLockTimeout, 0
		case strings.HasPrefix(m, "canceling statement due to statement timeout"):
			return KindStatementTimeout, 0
		case strings.HasPrefix(m, "out of memory"):
			return KindOutOfMemory, 0
		case strings.Contains(m, "No space left on device"):
			return KindDiskFull, 0
		}
	case "LOG":
		switch {
		case strings.HasPrefix(m, "process ") && strings.Contains(m, " still waiting for "):
			_, after, _ := strings.Cut(m, " after ")
			return KindStillWaiting, leading(after)
		case strings.HasPrefix(m, "checkpoints are occurring too frequently ("):
			return KindCheckpointsFrequent, leading(m[len("checkpoints are occurring too frequently ("):])
		case strings.HasPrefix(m, "could not fork new process for connection"):
			return KindCannotFork, 0
		case strings.HasPrefix(m, "all server processes terminated; reinitializing"):
			return KindRecovery, 0
		}
	}
	return "", 0
}

// leading is the whole number that a text begins with, 0 where there is none.
func leading(s string) int {
	n := 0
	for i := 0; i < len(s) && i < 9 && s[i] >= '0' && s[i] <= '9'; i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n
}

// statement reads "duration: 12.345 ms  statement: SELECT …", also of the
// extended protocol: "execute NAME: …", "parse …", "bind …".
func statement(m string) (took int64, text string, ok bool) {
	m, ok = strings.CutPrefix(m, "duration: ")
	if !ok {
		return 0, "", false
	}
	figure, rest, _ := strings.Cut(m, " ms")
	ms, err := parseFloat(figure)
	if err != nil || ms < 0 || ms > 1e9 {
		return 0, "", false
	}
	rest = strings.TrimLeft(rest, " ")
	if _, sql, ok := strings.Cut(rest, ": "); ok {
		return int64(ms * 1e6), sql, true
	}
	return int64(ms * 1e6), rest, true
}

// maxText is how much of a statement is looked at.
const maxText = 4 << 10

// readLog counts lines by kind and takes the statements with a duration. Lines
// that go on begin with a tab.
func (s *Server) readLog(b *budget.Budget, window observe.Window) {
	clock := logtail.NewClock(window)
	form := newPrefix(s.linePrefix)
	var open slowlog.Entry
	var text []byte
	var strange int64
	flush := func() {
		if open.TookNS > 0 {
			open.Statement = slowlog.Normalise(string(text))
			s.Add(open)
		}
		open, text = slowlog.Entry{}, text[:0]
	}
	scale := s.Read(b, s.log, func(line []byte) {
		if len(line) > 0 && line[0] == '\t' {
			if open.TookNS > 0 && len(text) < maxText {
				text = append(append(text, ' '), line[1:]...)
			}
			return
		}
		flush()
		h, severity, message, ok := form.parse(string(line))
		if !ok {
			strange++
			return
		}
		if h.atNS != 0 {
			second, in := clock.In(h.atNS / 1e9)
			if !in {
				return
			}
			h.atNS += (second - h.atNS/1e9) * 1e9
		}
		if kind, figure := classify(severity, message); kind != "" {
			s.kinds.Add(kind, nil, h.atNS/1e9, figure, line)
		}
		if took, sql, ok := statement(message); ok && severity == "LOG" && h.atNS != 0 {
			open = slowlog.Entry{EndNS: h.atNS, TookNS: took, PID: s.backend(h.pid), Peer: h.client, PeerPort: h.port, SlackNS: 1e6}
			if h.whole {
				open.EndNS, open.SlackNS = h.atNS+5e8, 5e8
			}
			text = append(text[:0], sql[:min(len(sql), maxText)]...)
		}
	})
	flush()
	s.kinds.Settle(scale)
	if n := len(s.Out.Logs); n > 0 {
		s.Out.Logs[n-1].Unparsed = strange
	}
}
