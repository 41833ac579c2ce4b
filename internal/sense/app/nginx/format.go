package nginx

import (
	"bytes"
	"strings"
)

type field int

const (
	fieldOther        field = iota
	fieldStatus             // $status: three digits
	fieldLocal              // $time_local: 21/Oct/2026:06:29:00 +0000
	fieldISO                // $time_iso8601: 2026-10-21T06:29:00+00:00
	fieldMsec               // $msec: 1792564140.123
	fieldRequestTime        // $request_time: seconds, "0.123"
	fieldUpstreamTime       // $upstream_response_time: "0.123, 0.001 : -"
)

var fields = map[string]field{
	"status": fieldStatus, "time_local": fieldLocal, "time_iso8601": fieldISO, "msec": fieldMsec,
	"request_time": fieldRequestTime, "upstream_response_time": fieldUpstreamTime,
}

// format finds the interesting fields in lines written by one log_format.
type format struct {
	lead   []byte // literal text before the first variable
	pieces []piece
}

// piece is a variable and the literal text that follows it.
type piece struct {
	field field
	after []byte
}

var combined = compileFormat(`$remote_addr - $remote_user [$time_local] "$request" ` +
	`$status $body_bytes_sent "$http_referer" "$http_user_agent"`)

// entry is what a line says. Slices point into the line.
type entry struct {
	status       int
	second       int64 // Unix time, 0 when the line has none
	requestTime  []byte
	upstreamTime []byte
}

// compileFormat prepares a log_format. It returns nil when $status cannot be
// found by it: the format has none, or a variable of unknown length before it
// is followed by another without text between.
func compileFormat(text string) *format {
	f := &format{}
	lastWanted, status := -1, false
	for len(text) > 0 && len(f.pieces) < maxPieces {
		lit, name, rest := nextVariable(text)
		text = rest
		if len(f.pieces) == 0 {
			f.lead = append(f.lead, lit...)
		} else {
			p := &f.pieces[len(f.pieces)-1]
			p.after = append(p.after, lit...)
		}
		if name == "" {
			continue
		}
		if n := len(f.pieces); n > 0 && len(f.pieces[n-1].after) == 0 && !f.pieces[n-1].field.typed() {
			break
		}
		p := piece{field: fields[name]}
		f.pieces = append(f.pieces, p)
		if p.field != fieldOther {
			lastWanted = len(f.pieces) - 1
			status = status || p.field == fieldStatus
		}
	}
	if !status {
		return nil
	}
	f.pieces = f.pieces[:lastWanted+1]
	return f
}

// nextVariable splits text at its first "$name" or "${name}".
func nextVariable(text string) (lit, name, rest string) {
	i := strings.IndexByte(text, '$')
	if i < 0 {
		return text, "", ""
	}
	lit, rest = text[:i], text[i+1:]
	if inside, ok := strings.CutPrefix(rest, "{"); ok {
		if name, after, ok := strings.Cut(inside, "}"); ok && name != "" {
			return lit, name, after
		}
	}
	n := 0
	for n < len(rest) && (rest[n] == '_' || isDigit(rest[n]) || rest[n]|0x20 >= 'a' && rest[n]|0x20 <= 'z') {
		n++
	}
	if n == 0 {
		return text[:i+1], "", rest
	}
	return lit, rest[:n], rest[n:]
}

// typed fields have a form by which they are recognised.
func (f field) typed() bool { return f != fieldOther && f != fieldUpstreamTime }

// Bounds of reading one line: how often a field is searched for behind text that may
// hold the same delimiter, such as a user agent, in how many fields, and in how many
// bytes all together.
const (
	maxTries  = 64
	maxPieces = 128
	maxWork   = 1 << 20
)

// extract reads a line; times parse through the cache. False: the line was
// not written in this format.
func (f *format) extract(line []byte, times *stamps, e *entry) bool {
	*e = entry{}
	if !bytes.HasPrefix(line, f.lead) {
		return false
	}
	rest := line[len(f.lead):]
	work := maxWork
	for i := range f.pieces {
		p := &f.pieces[i]
		n := 0
		if p.field.typed() {
			if n = p.match(rest); n < 0 {
				return false
			}
			if !e.set(p.field, rest[:n], times) {
				return false
			}
		} else {
			if n = p.seek(rest, f.pieces[i+1:], &work); n < 0 {
				return false
			}
			if p.field == fieldUpstreamTime {
				e.upstreamTime = rest[:n]
			}
		}
		rest = rest[n+len(p.after):]
	}
	return true
}

// match returns the length of a typed field that begins here and is followed
// by its literal text, or -1.
func (p *piece) match(b []byte) int {
	n := typedLen(p.field, b)
	if n < 0 || !bytes.HasPrefix(b[n:], p.after) || len(p.after) == 0 && n < len(b) && isDigit(b[n]) {
		return -1
	}
	return n
}

// seek returns the length of a field of unknown form: up to its literal text,
// and where typed fields follow, up to one that is followed by such.
func (p *piece) seek(b []byte, next []piece, work *int) int {
	if len(p.after) == 0 {
		return len(b)
	}
	from := 0
	for range maxTries {
		i := bytes.Index(b[from:], p.after)
		if *work -= max(i, 0) + len(next) + 1; i < 0 || *work < 0 {
			return -1
		}
		n := from + i
		if matchTyped(b[n+len(p.after):], next) {
			return n
		}
		from = n + 1
	}
	return -1
}

// matchTyped says whether the typed fields before the next one of unknown form
// all fit.
func matchTyped(b []byte, pieces []piece) bool {
	for i := range pieces {
		p := &pieces[i]
		if !p.field.typed() {
			break
		}
		n := p.match(b)
		if n < 0 {
			return false
		}
		b = b[n+len(p.after):]
	}
	return true
}

func typedLen(f field, b []byte) int {
	switch f {
	case fieldStatus:
		if len(b) >= 3 && isDigit(b[0]) && isDigit(b[1]) && isDigit(b[2]) {
			return 3
		}
	case fieldLocal:
		if len(b) >= localLen && b[2] == '/' && b[6] == '/' && b[11] == ':' && b[20] == ' ' {
			return localLen
		}
	case fieldISO:
		if len(b) >= isoLen && b[4] == '-' && b[7] == '-' && b[10] == 'T' {
			return isoLen
		}
	case fieldMsec, fieldRequestTime:
		n := 0
		for n < len(b) && n < 20 && (isDigit(b[n]) || b[n] == '.') {
			n++
		}
		if n > 0 {
			return n
		}
		if f == fieldRequestTime && len(b) > 0 && b[0] == '-' {
			return 1
		}
	}
	return -1
}

func (e *entry) set(f field, b []byte, times *stamps) bool {
	ok := true
	switch f {
	case fieldStatus:
		e.status = int(b[0]-'0')*100 + int(b[1]-'0')*10 + int(b[2]-'0')
	case fieldLocal:
		e.second, ok = times.local(b)
	case fieldISO:
		e.second, ok = times.iso(b)
	case fieldMsec:
		e.second, ok = unixSeconds(b)
	case fieldRequestTime:
		e.requestTime = b
	}
	return ok
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
