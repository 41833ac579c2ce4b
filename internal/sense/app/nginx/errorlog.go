package nginx

import "bytes"

// Kinds of error log lines, observe.LogKind.Kind.
const (
	KindWorkerConnections      = "worker-connections"
	KindEphemeralPorts         = "ephemeral-ports"
	KindUpstreamRefused        = "upstream-refused"
	KindUpstreamConnectTimeout = "upstream-connect-timeout"
	KindUpstreamReadTimeout    = "upstream-read-timeout" // also while sending the request
	KindUpstreamBusy           = "upstream-busy"
	KindUpstreamReset          = "upstream-reset"
	KindNoLiveUpstreams        = "no-live-upstreams"
	KindFDLimit                = "fd-limit"
	KindFileTableFull          = "file-table-full"
	KindWorkerFDCap            = "worker-fd-cap"
	KindClientClosed           = "client-closed"
	KindLimitReq               = "limit-req"
	KindLimitReqDelay          = "limit-req-delay"
	KindLimitConn              = "limit-conn"
	KindBufferedToDisk         = "buffered-to-disk"
	KindNoSpace                = "no-space"
	KindOtherError             = "other-error" // level error and above
)

// errorLine is a line of an error log (ngx_log_error_core, src/core/ngx_log.c):
// "2026/10/21 06:29:00 [error] 12#12: *7 MESSAGE, client: …".
type errorLine struct {
	stamp   []byte
	level   []byte
	message []byte
}

func parseErrorLine(b []byte) (l errorLine, ok bool) {
	if len(b) < errorLen+4 || b[4] != '/' || b[7] != '/' || b[10] != ' ' || b[13] != ':' || b[16] != ':' ||
		b[errorLen] != ' ' || b[errorLen+1] != '[' {
		return l, false
	}
	rest := b[errorLen+2:]
	end := bytes.IndexByte(rest[:min(len(rest), 16)], ']')
	if end < 0 {
		return l, false
	}
	l.stamp, l.level, rest = b[:errorLen], rest[:end], rest[end+1:]
	// " PID#TID: " and "*CONNECTION " are not of interest.
	if i := bytes.Index(rest[:min(len(rest), 48)], []byte(": ")); i >= 0 {
		rest = rest[i+2:]
	}
	if len(rest) > 0 && rest[0] == '*' {
		if i := bytes.IndexByte(rest[:min(len(rest), 24)], ' '); i >= 0 {
			rest = rest[i+1:]
		}
	}
	l.message = rest
	return l, true
}

// severe says whether a level is error or above.
func severe(level []byte) bool {
	switch string(level) {
	case "error", "crit", "alert", "emerg":
		return true
	}
	return false
}

var (
	contextMark  = []byte(", client: ")
	upstreamMark = []byte(`, upstream: "`)
	failedMark   = []byte(" failed (")
	upstreamWord = []byte("upstream")
	clientWord   = []byte("client")
)

// classify tells the kind of a line, "" for one of no interest, the upstream
// it names and a figure in it. What stands behind ", client: " (the request,
// the referrer) is text from the network and decides nothing.
func (l *errorLine) classify() (kind string, upstream []byte, figure int) {
	head := l.message
	if i := bytes.Index(head, contextMark); i >= 0 {
		head = head[:i]
	}
	kind, figure = byBeginning(head)
	if kind == "" {
		kind = l.byErrno(head)
	}
	if kind == "" && severe(l.level) {
		kind = KindOtherError
	}
	switch {
	case namesUpstream(kind):
		upstream = upstreamOf(l.message, head)
	case kind == KindLimitReq || kind == KindLimitReqDelay || kind == KindLimitConn:
		upstream = between(head, zoneMark, '"') // the zone is what it is counted by
	}
	return kind, upstream, figure
}

var zoneMark = []byte(`by zone "`)

// between is what stands behind a mark, up to the end character; nil without
// either.
func between(text, mark []byte, end byte) []byte {
	i := bytes.Index(text, mark)
	if i < 0 {
		return nil
	}
	text = text[i+len(mark):]
	if i = bytes.IndexByte(text, end); i < 0 {
		return nil
	}
	return text[:i]
}

// client is the address of the client that a line names, nil for none. Of the
// line's text from the network only what stands behind it can be made up.
func (l *errorLine) client() []byte { return between(l.message, contextMark, ',') }

func namesUpstream(kind string) bool {
	switch kind {
	case KindEphemeralPorts, KindUpstreamRefused, KindUpstreamConnectTimeout, KindUpstreamReadTimeout,
		KindUpstreamBusy, KindUpstreamReset, KindNoLiveUpstreams:
		return true
	}
	return false
}

// byBeginning recognises the messages that begin in a way of their own.
func byBeginning(m []byte) (kind string, figure int) {
	if len(m) == 0 {
		return "", 0
	}
	switch c := m[0]; {
	case isDigit(c):
		n, rest := leadingNumber(m)
		if rest, ok := bytes.CutPrefix(rest, []byte(" worker_connections ")); ok {
			return workerConnections(rest, n)
		}
	case c == 'w':
		if rest, ok := bytes.CutPrefix(m, []byte("worker_connections ")); ok {
			return workerConnections(rest, 0)
		}
	case c == 'a':
		if bytes.Contains(m, []byte(" is buffered to a temporary file")) {
			return KindBufferedToDisk, 0
		}
	case c == 'l':
		switch {
		case bytes.HasPrefix(m, []byte("limiting requests")):
			return KindLimitReq, 0
		case bytes.HasPrefix(m, []byte("limiting connections")):
			return KindLimitConn, 0
		}
	case c == 'd':
		if bytes.HasPrefix(m, []byte("delaying request")) {
			return KindLimitReqDelay, 0
		}
	case c == 'n':
		if bytes.HasPrefix(m, []byte("no live upstreams")) {
			return KindNoLiveUpstreams, 0
		}
	case c == 'u':
		return byUpstream(m), 0
	case c == 'c' || c == 'e':
		if bytes.HasPrefix(m, []byte("client ")) || bytes.HasPrefix(m, []byte("epoll_wait() reported that client ")) {
			if bytes.Contains(m, []byte("prematurely closed connection")) {
				return KindClientClosed, 0
			}
		}
	}
	return "", 0
}

func workerConnections(rest []byte, n int) (string, int) {
	switch {
	case bytes.HasPrefix(rest, []byte("are not enough")):
		return KindWorkerConnections, n
	case bytes.HasPrefix(rest, []byte("exceed open file resource limit")):
		if i := bytes.LastIndexByte(rest, ' '); i >= 0 {
			if limit, _ := leadingNumber(rest[i+1:]); limit > 0 {
				n = limit
			}
		}
		return KindWorkerFDCap, n
	}
	return "", 0
}

func byUpstream(m []byte) string {
	switch {
	case bytes.HasPrefix(m, []byte("upstream timed out")):
		if bytes.Contains(m, []byte("while connecting to upstream")) {
			return KindUpstreamConnectTimeout
		}
		return KindUpstreamReadTimeout
	case bytes.HasPrefix(m, []byte("upstream prematurely closed")):
		return KindUpstreamReset
	}
	return ""
}

// byErrno recognises the failed system calls.
func (l *errorLine) byErrno(head []byte) string {
	connecting := bytes.HasPrefix(head, []byte("connect()"))
	toUpstream := connecting || bytes.Contains(head, upstreamWord)
	switch errnoOf(head) {
	case 99:
		if connecting || bytes.HasPrefix(head, []byte("bind(")) && string(l.level) != "emerg" {
			return KindEphemeralPorts // emerg: a listen address that the host does not have
		}
	case 111:
		if toUpstream {
			return KindUpstreamRefused
		}
	case 110:
		switch {
		case connecting, bytes.Contains(head, []byte("connecting to upstream")):
			return KindUpstreamConnectTimeout
		case toUpstream:
			return KindUpstreamReadTimeout
		}
	case 11:
		if connecting {
			return KindUpstreamBusy
		}
	case 104, 32:
		switch {
		case toUpstream:
			return KindUpstreamReset
		case bytes.Contains(head, clientWord):
			return KindClientClosed
		}
	case 24:
		return KindFDLimit
	case 23:
		return KindFileTableFull
	case 28:
		return KindNoSpace
	}
	return ""
}

// errnoTexts are the texts of glibc and musl for the errors of interest.
var errnoTexts = []struct {
	text  string
	errno int
}{
	{"Cannot assign requested address", 99}, {"Address not available", 99},
	{"Connection refused", 111},
	{"Connection timed out", 110}, {"Operation timed out", 110},
	{"Resource temporarily unavailable", 11},
	{"Connection reset by peer", 104}, {"Broken pipe", 32},
	{"Too many open files in system", 23}, {"Too many open files", 24}, {"No file descriptors available", 24},
	{"No space left on device", 28},
}

// errnoOf finds the error number in "… failed (111: Connection refused) …",
// or takes it from the text where the number is missing; 0 when neither is.
func errnoOf(head []byte) int {
	i := bytes.Index(head, failedMark)
	if i >= 0 {
		rest := head[i+len(failedMark):]
		if n, after := leadingNumber(rest); n > 0 && len(after) > 0 && (after[0] == ':' || after[0] == ')') {
			return n
		}
		return errnoByText(rest)
	}
	if i = bytes.Index(head, []byte(" failed")); i >= 0 {
		return errnoByText(bytes.TrimLeft(head[i+len(" failed"):], ": "))
	}
	return 0
}

func errnoByText(b []byte) int {
	for _, e := range errnoTexts {
		if len(b) >= len(e.text) && string(b[:len(e.text)]) == e.text {
			return e.errno
		}
	}
	return 0
}

func leadingNumber(b []byte) (n int, rest []byte) {
	i := 0
	for i < len(b) && i < 9 && isDigit(b[i]) {
		n = n*10 + int(b[i]-'0')
		i++
	}
	return n, b[i:]
}

// upstreamOf finds the address a line names: in "connect() to ADDRESS failed",
// else in `upstream: "scheme://ADDRESS/uri"`.
func upstreamOf(message, head []byte) []byte {
	if rest, ok := bytes.CutPrefix(head, []byte("connect() to ")); ok {
		if i := bytes.IndexByte(rest, ' '); i > 0 {
			return rest[:i]
		}
	}
	i := bytes.Index(message, upstreamMark)
	if i < 0 {
		return nil
	}
	u := message[i+len(upstreamMark):]
	if i := bytes.IndexByte(u, '"'); i >= 0 {
		u = u[:i]
	}
	if i := bytes.Index(u, []byte("://")); i >= 0 {
		u = u[i+3:]
	}
	if rest, ok := bytes.CutPrefix(u, []byte("unix:")); ok {
		if i := bytes.IndexByte(rest, ':'); i >= 0 {
			return u[:len("unix:")+i]
		}
		return u
	}
	if i := bytes.IndexByte(u, '/'); i >= 0 {
		u = u[:i]
	}
	return u
}
