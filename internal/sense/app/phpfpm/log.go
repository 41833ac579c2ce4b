package phpfpm

import (
	"bytes"
	"time"
)

// Kinds of log lines, observe.LogKind.Kind. In brackets: its Number.
const (
	KindMaxChildren      = "max-children"      // pool at pm.max_children [the limit]
	KindProcessMax       = "process-max"       // all pools at process.max
	KindSeemsBusy        = "seems-busy"        // spawning faster and faster [children in all]
	KindSlowRequest      = "slow-request"      // over request_slowlog_timeout [seconds]
	KindExecutionTimeout = "execution-timeout" // over request_terminate_timeout [seconds]
	KindChildExited      = "child-exited"      // by a signal or with an error [signal or code]
	KindChildRecycled    = "child-recycled"    // with code 0, as after pm.max_requests
)

// logLine is a line of php-fpm's log (sapi/fpm/fpm/zlog.c):
// "[21-Oct-2026 06:29:00] WARNING: [pool www] MESSAGE".
type logLine struct {
	stamp   []byte // "21-Oct-2026 06:29:00"
	pool    []byte // nil for a line of the master itself
	message []byte
}

const stampLayout = "02-Jan-2006 15:04:05"

func parseLogLine(b []byte) (l logLine, ok bool) {
	const n = len(stampLayout)
	if len(b) < n+4 || b[0] != '[' || b[3] != '-' || b[7] != '-' || b[12] != ' ' || b[15] != ':' || b[18] != ':' {
		return l, false
	}
	l.stamp = b[1 : n+1]
	rest := b[n+1:]
	// log_level = debug adds microseconds here and "pid N, func(), line N: " below.
	end := bytes.IndexByte(rest[:min(len(rest), 10)], ']')
	if end < 0 || end+1 >= len(rest) || rest[end+1] != ' ' {
		return l, false
	}
	rest = rest[end+2:]
	i := bytes.Index(rest[:min(len(rest), 12)], []byte(": "))
	if i < 0 || !isLevel(rest[:i]) {
		return l, false
	}
	rest = rest[i+2:]
	if bytes.HasPrefix(rest, []byte("pid ")) {
		if i := bytes.Index(rest[:min(len(rest), 128)], []byte(", line ")); i >= 0 {
			if j := bytes.Index(rest[i:min(len(rest), 160)], []byte(": ")); j >= 0 {
				rest = rest[i+j+2:]
			}
		}
	}
	if after, ok := bytes.CutPrefix(rest, []byte("[pool ")); ok {
		if i := bytes.Index(after, []byte("] ")); i >= 0 {
			l.pool, rest = after[:i], after[i+2:]
		}
	}
	l.message = rest
	return l, true
}

func isLevel(b []byte) bool {
	switch string(b) {
	case "DEBUG", "NOTICE", "WARNING", "ERROR", "ALERT":
		return true
	}
	return false
}

// classify tells the kind of a line, "" for one of no interest. A script's own
// output ("child 12 said into stderr") and the request in a line are text from
// outside and decide nothing.
func (l *logLine) classify() (kind string, figure int) {
	m := l.message
	switch {
	case bytes.HasPrefix(m, []byte("server reached ")):
		if i := bytes.Index(m, []byte("max_children setting (")); i >= 0 {
			return KindMaxChildren, leadingNumber(m[i+len("max_children setting ("):])
		}
	case bytes.HasPrefix(m, []byte("seems busy ")):
		i := bytes.LastIndex(m, []byte(" idle, and "))
		if i < 0 {
			return KindSeemsBusy, 0
		}
		return KindSeemsBusy, leadingNumber(m[i+len(" idle, and "):])
	case bytes.HasPrefix(m, []byte("The maximum number of processes has been reached")):
		return KindProcessMax, 0
	case bytes.HasPrefix(m, []byte("child ")):
		return classifyChild(m[len("child "):])
	}
	return "", 0
}

func classifyChild(m []byte) (kind string, figure int) {
	for len(m) > 0 && m[0] >= '0' && m[0] <= '9' {
		m = m[1:]
	}
	switch {
	case bytes.HasPrefix(m, []byte(", script ")):
		if bytes.HasSuffix(m, []byte(" sec), logging")) {
			return KindSlowRequest, lastFigure(m, "executing too slow (")
		}
		if bytes.HasSuffix(m, []byte(" sec), terminating")) {
			return KindExecutionTimeout, lastFigure(m, "execution timed out (")
		}
	case bytes.HasPrefix(m, []byte(" exited on signal ")):
		return KindChildExited, leadingNumber(m[len(" exited on signal "):])
	case bytes.HasPrefix(m, []byte(" exited with code ")):
		code := leadingNumber(m[len(" exited with code "):])
		if code == 0 {
			return KindChildRecycled, 0
		}
		return KindChildExited, code
	}
	return "", 0
}

func lastFigure(m []byte, before string) int {
	i := bytes.LastIndex(m, []byte(before))
	if i < 0 {
		return 0
	}
	return leadingNumber(m[i+len(before):])
}

func leadingNumber(b []byte) int {
	n := 0
	for i := 0; i < len(b) && i < 9 && b[i] >= '0' && b[i] <= '9'; i++ {
		n = n*10 + int(b[i]-'0')
	}
	return n
}

// stamps turns the times of lines into Unix seconds and remembers the last.
type stamps struct {
	last   []byte
	second int64
	ok     bool
}

func (s *stamps) parse(b []byte) (int64, bool) {
	if !bytes.Equal(s.last, b) {
		s.last = append(s.last[:0], b...)
		t, err := time.ParseInLocation(stampLayout, string(b), time.Local)
		s.second, s.ok = t.Unix(), err == nil
	}
	return s.second, s.ok
}
