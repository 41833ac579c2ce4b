package postgres

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/sense/app/database"
)

func parseFloat(s string) (float64, error) { return database.Figure(strings.TrimSpace(s)) }

// prefix reads what log_line_prefix puts before each line: literal text, and
// escapes of which time, process and client are of interest.
type prefix []piece

// maxPieces bounds a prefix: PostgreSQL knows some twenty escapes.
const maxPieces = 64

type piece struct {
	escape  byte // 0: literal
	literal string
}

func newPrefix(format string) prefix {
	var p prefix
	for i := 0; i < len(format) && len(p) < maxPieces; i++ {
		if format[i] != '%' || i+1 >= len(format) {
			if n := len(p); n > 0 && p[n-1].escape == 0 {
				p[n-1].literal += format[i : i+1]
			} else {
				p = append(p, piece{literal: format[i : i+1]})
			}
			continue
		}
		i++
		for i+1 < len(format) && (format[i] == '-' || format[i] >= '0' && format[i] <= '9') {
			i++ // padding
		}
		if format[i] == '%' {
			p = append(p, piece{literal: "%"})
		} else {
			p = append(p, piece{escape: format[i]})
		}
	}
	return p
}

// head is what the prefix of a line said.
type head struct {
	atNS   int64 // ns since 1970, in the server's log_timezone taken for local
	whole  bool  // atNS is a whole second
	pid    int
	client netip.Addr
	port   int
}

// severities are those of lines that are looked at.
var severities = []string{"LOG:  ", "FATAL:  ", "ERROR:  ", "PANIC:  ", "WARNING:  ", "HINT:  ", "DETAIL:  ", "STATEMENT:  ", "CONTEXT:  "}

// parse splits a line into its prefix, its severity and its message.
func (p prefix) parse(line string) (h head, severity, message string, ok bool) {
	at := -1
	for _, s := range severities {
		if i := strings.Index(line, s); i >= 0 && (at < 0 || i < at) {
			at, severity, message = i, s[:len(s)-3], line[i+len(s):]
		}
	}
	if at < 0 {
		return h, "", "", false
	}
	rest := line[:at]
	for i, piece := range p {
		if piece.escape == 0 {
			_, after, found := strings.Cut(rest, piece.literal)
			if !found {
				break // as the rest of a prefix with %q, of a process without a session
			}
			rest = after
			continue
		}
		if piece.escape == 'q' {
			continue
		}
		value := rest
		if i+1 < len(p) && p[i+1].escape == 0 {
			end := strings.Index(rest, p[i+1].literal)
			if piece.escape == 'm' || piece.escape == 't' {
				end = timeEnd(rest, p[i+1].literal)
			}
			if end < 0 {
				break
			}
			value = rest[:end]
		}
		rest = rest[len(value):]
		h.take(piece.escape, strings.TrimSpace(value))
	}
	return h, severity, message, true
}

// timeEnd is where a time ends that has spaces in it: "2026-11-21 23:59:25.123
// UTC".
func timeEnd(s, literal string) int {
	from := 0
	for range 2 {
		i := strings.IndexByte(s[from:], ' ')
		if i < 0 {
			return -1
		}
		from += i + 1
	}
	if i := strings.Index(s[from:], literal); i >= 0 {
		return from + i
	}
	return -1
}

func (h *head) take(escape byte, value string) {
	switch escape {
	case 'm', 't':
		fields := strings.Fields(value)
		if len(fields) < 2 {
			return
		}
		zone := time.Local
		if len(fields) > 2 && (fields[2] == "UTC" || fields[2] == "GMT") {
			zone = time.UTC
		}
		if t, err := time.ParseInLocation("2006-01-02 15:04:05.999", fields[0]+" "+fields[1], zone); err == nil {
			h.atNS, h.whole = t.UnixNano(), escape == 't'
		}
	case 'n':
		if s, err := parseFloat(value); err == nil && s > 0 && s < 1e11 {
			h.atNS = int64(s*1e3) * 1e6
		}
	case 'p':
		h.pid, _ = strconv.Atoi(value)
	case 'h':
		if a, err := netip.ParseAddr(value); err == nil {
			h.client = a.Unmap()
		}
	case 'r':
		host, port, _ := strings.Cut(strings.TrimSuffix(value, ")"), "(")
		if a, err := netip.ParseAddr(host); err == nil {
			h.client = a.Unmap()
			h.port, _ = strconv.Atoi(port)
		}
	}
}
