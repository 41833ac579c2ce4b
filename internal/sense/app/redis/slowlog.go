package redis

import (
	"net/netip"
	"strings"

	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/slowlog"
)

// slowCommand is one entry of SLOWLOG.
type slowCommand struct {
	id      int64
	second  int64
	tookNS  int64
	command string // normalised
	client  string // "10.1.2.3:41234"
}

// twoWords are the commands whose second word says what they do.
var twoWords = map[string]bool{"CONFIG": true, "CLIENT": true, "DEBUG": true, "MEMORY": true, "SCRIPT": true, "OBJECT": true,
	"XINFO": true, "XGROUP": true, "CLUSTER": true, "ACL": true, "FUNCTION": true}

const maxArgument = 48

// command is what a command does, and on what kind of key: digits of the first
// argument are taken out, and all that follows it but how many there are. What
// is written of a script is its beginning.
func command(args []reply) string {
	if len(args) == 0 {
		return "?"
	}
	name := strings.ToUpper(logtail.Printable([]byte(args[0].text), 32))
	rest := args[1:]
	if twoWords[name] && len(rest) > 0 {
		name += " " + strings.ToUpper(logtail.Printable([]byte(rest[0].text), 32))
		rest = rest[1:]
	}
	switch {
	case len(rest) == 0:
		return name
	case strings.HasPrefix(name, "EVAL"), strings.HasPrefix(name, "FCALL"):
		script := strings.Join(strings.Fields(rest[0].text), " ")
		return name + " " + logtail.Printable([]byte(script), 2*maxArgument)
	case strings.HasPrefix(name, "AUTH"), name == "HELLO":
		return name
	case len(rest) == 1:
		return name + " " + key(rest[0].text)
	}
	return name + " " + key(rest[0].text) + " …"
}

// key is a key's kind: digits are "?".
func key(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if c := text[i]; c < '0' || c > '9' {
			b.WriteByte(c)
		} else if i == 0 || text[i-1] < '0' || text[i-1] > '9' {
			b.WriteByte('?')
		}
	}
	return logtail.Printable([]byte(b.String()), maxArgument)
}

// entry is the command as an entry of a slow log. Redis writes the second in
// which it was over.
func (c *slowCommand) entry(pid int) slowlog.Entry {
	e := slowlog.Entry{Statement: c.command, EndNS: c.second*1e9 + 5e8, SlackNS: 5e8, TookNS: c.tookNS, PID: pid}
	if a, err := netip.ParseAddrPort(c.client); err == nil {
		e.Peer, e.PeerPort = a.Addr().Unmap(), int(a.Port())
	}
	return e
}
