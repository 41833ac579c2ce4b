package mariadb

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/database"
	"github.com/slowray/slowray/internal/sense/app/slowlog"
)

// maxText is how much of a statement is looked at.
const maxText = 4 << 10

// slowParser puts the lines of a slow log together to entries (sql/log.cc,
// MYSQL_QUERY_LOG::write). The time of an entry is that of its SET timestamp:
// the second in which the statement began.
type slowParser struct {
	emit  func(slowlog.Entry)
	entry slowlog.Entry
	begun int64 // second; 0 = not told
	text  []byte
	open  bool // the header of an entry was seen
	// Strange counts lines of no known form outside of statements.
	strange int64
}

func (p *slowParser) line(line []byte) {
	line = bytes.TrimRight(line, "\r")
	if len(line) > 0 && line[0] == '#' {
		if p.open && (len(p.text) > 0 || p.begun != 0) {
			p.flush()
		}
		p.header(line)
		return
	}
	switch {
	case !p.open:
		if len(line) > 0 && !bytes.Contains(line, []byte("started with:")) && !bytes.HasPrefix(line, []byte("Tcp port:")) && !bytes.HasPrefix(line, []byte("Time\t")) {
			p.strange++
		}
	case len(p.text) == 0 && bytes.HasPrefix(line, []byte("SET timestamp=")):
		text := strings.TrimRight(string(line[len("SET timestamp="):]), "; ")
		// MySQL writes a fraction where the client set one.
		text, _, _ = strings.Cut(text, ".")
		p.begun, _ = strconv.ParseInt(text, 10, 64)
	case len(p.text) == 0 && bytes.HasPrefix(line, []byte("use ")):
	case len(p.text) < maxText:
		p.text = append(append(p.text, line...), '\n')
	}
}

// header takes up a line that begins with "#".
func (p *slowParser) header(line []byte) {
	text := string(line)
	switch {
	case strings.HasPrefix(text, "# User@Host:"):
		p.open = true
		p.entry.Peer = peer(text)
	case strings.HasPrefix(text, "# Query_time:"):
		p.open = true
		fields := strings.Fields(text[2:])
		for i := 0; i+1 < len(fields); i += 2 {
			value := fields[i+1]
			switch fields[i] {
			case "Query_time:":
				p.entry.TookNS = nanoseconds(value)
			case "Lock_time:":
				p.entry.LockNS = nanoseconds(value)
			case "Rows_sent:":
				p.entry.Sent, _ = strconv.ParseInt(value, 10, 64)
			case "Rows_examined:":
				p.entry.Examined, _ = strconv.ParseInt(value, 10, 64)
			}
		}
	}
}

// peer reads the address in "# User@Host: user[user] @ host [10.1.2.3]"; a
// client of the unix socket has none.
func peer(text string) netip.Addr {
	open, end := strings.LastIndexByte(text, '['), strings.LastIndexByte(text, ']')
	if open < 0 || end < open {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(text[open+1 : end])
	return a.Unmap()
}

func nanoseconds(seconds string) int64 {
	s, err := database.Figure(seconds)
	if err != nil || s < 0 || s > 1e9 {
		return 0
	}
	return int64(s * 1e9)
}

// flush ends the entry in hand.
func (p *slowParser) flush() {
	if p.open && p.entry.TookNS > 0 {
		e := p.entry
		e.Statement = slowlog.Normalise(string(p.text))
		// It began within the second that is written.
		e.SlackNS = 5e8
		e.EndNS = p.begun*1e9 + 5e8 + e.TookNS
		if p.begun == 0 {
			e.EndNS = 0
		}
		p.emit(e)
	}
	p.entry, p.begun, p.text, p.open = slowlog.Entry{}, 0, p.text[:0], false
}

func (s *Server) readSlowLog(b *budget.Budget, window observe.Window) {
	if s.slowLog == nil {
		return
	}
	from := window.Start.UnixNano() - 1e9
	to := window.Start.UnixNano() + int64(window.Seconds*1e9) + 1e9
	var clients, local int64
	p := slowParser{emit: func(e slowlog.Entry) {
		if e.EndNS != 0 && (e.EndNS < from || e.EndNS > to) {
			return
		}
		if e.Peer.IsValid() {
			clients++
		} else {
			local++
		}
		s.Add(e)
	}}
	if scale := s.Read(b, s.slowLog, p.line); scale > 1 {
		s.Lose("entries of the slow log of "+s.Process.Comm+" that were not read", int64(float64(clients+local)*(scale-1)))
	}
	p.flush()
	if n := len(s.Out.Logs); n > 0 {
		s.Out.Logs[n-1].Unparsed = p.strange
	}
}
