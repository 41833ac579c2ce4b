package nginx

import (
	"bytes"
	"math"

	"github.com/slowray/slowray/internal/observe"
)

// maxStatusSeconds is how many seconds of a window are kept by the second.
const maxStatusSeconds = 3600

// classes are the counters of observe.StatusSecond.
const (
	class2xx = iota
	class3xx
	class4xx
	class499
	class5xx
	classCount
)

// classOf is -1 for a status that is not counted: 1xx, and 000 or 009 where
// there was no answer.
func classOf(status int) int {
	switch {
	case status == 499:
		return class499
	case status >= 200 && status <= 299:
		return class2xx
	case status >= 300 && status <= 399:
		return class3xx
	case status >= 400 && status <= 499:
		return class4xx
	case status >= 500 && status <= 599:
		return class5xx
	}
	return -1
}

// statuses counts answers by second and class over all access logs.
type statuses struct {
	start   int64 // Unix time
	seconds int
	raw     [][classCount]int64 // of the log in hand
	total   [][classCount]float64
	beyond  int64 // lines of later seconds than are kept
}

func newStatuses(w observe.Window) *statuses {
	n := int(math.Ceil(min(w.Seconds, maxStatusSeconds)))
	n = max(n, 1)
	return &statuses{start: w.Start.Unix(), seconds: int(math.Ceil(w.Seconds)),
		raw: make([][classCount]int64, n), total: make([][classCount]float64, n)}
}

func (s *statuses) add(offset, status int) {
	class := classOf(status)
	if class < 0 {
		return
	}
	if offset = max(offset, 0); offset >= len(s.raw) {
		if s.seconds > len(s.raw) && offset < s.seconds {
			s.beyond++
			return
		}
		offset = len(s.raw) - 1
	}
	s.raw[offset][class]++
}

// settle multiplies what was added since the last settle by a log's scale.
func (s *statuses) settle(scale float64) {
	for i := range s.raw {
		for c, n := range s.raw[i] {
			s.total[i][c] += float64(n) * scale
		}
		s.raw[i] = [classCount]int64{}
	}
}

// list is the seconds in which there were answers.
func (s *statuses) list() []observe.StatusSecond {
	var out []observe.StatusSecond
	for i, t := range s.total {
		if t == [classCount]float64{} {
			continue
		}
		n := func(c int) int64 { return int64(math.Round(t[c])) }
		out = append(out, observe.StatusSecond{Offset: i, S2xx: n(class2xx), S3xx: n(class3xx),
			S4xx: n(class4xx), S499: n(class499), S5xx: n(class5xx)})
	}
	return out
}

// guess reads a line of no known format: the status after the quoted request,
// or after a JSON key, and the bracketed time if there is one.
func guess(line []byte, times *stamps, e *entry) bool {
	*e = entry{}
	e.status = statusAfterQuote(line)
	if e.status < 0 {
		e.status = statusAfterKey(line)
	}
	if e.status < 0 {
		return false
	}
	if i := bytes.IndexByte(line, '['); i >= 0 && typedLen(fieldLocal, line[i+1:]) > 0 {
		if s, ok := times.local(line[i+1 : i+1+localLen]); ok {
			e.second = s
		}
	}
	return true
}

// statusAfterQuote finds `" NNN ` or `" NNN` at the end.
func statusAfterQuote(line []byte) int {
	for rest := line; ; {
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			return -1
		}
		rest = rest[i+1:]
		if len(rest) >= 4 && rest[0] == ' ' {
			if n := threeDigits(rest[1:]); n >= 0 {
				return n
			}
		}
	}
}

var statusKey = []byte(`"status":`)

func statusAfterKey(line []byte) int {
	i := bytes.Index(line, statusKey)
	if i < 0 {
		return -1
	}
	return threeDigits(bytes.TrimLeft(line[i+len(statusKey):], ` "`))
}

// threeDigits reads a status that ends where its three digits end.
func threeDigits(b []byte) int {
	if len(b) < 3 || len(b) > 3 && (isDigit(b[3]) || b[3] == '.') {
		return -1
	}
	n := number(b[:3])
	if n < 100 {
		return -1
	}
	return n
}
