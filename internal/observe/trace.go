package observe

import (
	"encoding/hex"
	"errors"
	"strings"
)

// Trace is the trace context that a request carries (W3C Trace Context), or that the thread
// published which sent it, or its answer (FlagThreadContext).
type Trace struct {
	ID     [16]byte
	Parent [8]byte // the span that sent the request, or the one that answers it
	Flags  uint32  // the eight of the header: TraceSampled
}

// TraceSampled says that who sent the request may have recorded its span.
const TraceSampled = 1

// Known says whether there is one: an ID of zeros is none.
func (t *Trace) Known() bool { return t.ID != [16]byte{} }

// traceparentLength is that of "00-" + 32 digits + "-" + 16 digits + "-" + 2 digits.
const traceparentLength = 2 + 1 + 32 + 1 + 16 + 1 + 2

// ParseTraceparent reads the value of the header traceparent (W3C Trace Context, 3.2). Of a
// version after 00 the fields of 00 are taken, as the standard has it. ok is false for what
// is malformed.
func ParseTraceparent[T string | []byte](value T) (t Trace, ok bool) {
	if len(value) < traceparentLength || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return Trace{}, false
	}
	var version, flags [1]byte
	if !lowerHex(version[:], value[:2]) || !lowerHex(t.ID[:], value[3:35]) || !lowerHex(t.Parent[:], value[36:52]) || !lowerHex(flags[:], value[53:55]) {
		return Trace{}, false
	}
	switch longer := len(value) > traceparentLength; {
	case version[0] == 0xff, !t.Known(), t.Parent == [8]byte{}:
		return Trace{}, false
	case longer && (version[0] == 0 || value[traceparentLength] != '-'):
		return Trace{}, false
	}
	t.Flags = uint32(flags[0])
	return t, true
}

// lowerHex decodes hexadecimal digits, which have to be of lower case.
func lowerHex[T string | []byte](to []byte, from T) bool {
	for i := range to {
		high, low := digit(from[2*i]), digit(from[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		to[i] = high<<4 | low
	}
	return true
}

func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 16
}

// TraceMatch is a trace that a person asks for: its ID, or how that begins.
type TraceMatch string

const (
	leastTraceDigits = 8
	traceDigits      = 32
)

// TraceOf asks for the trace of a request.
func TraceOf(t *Trace) TraceMatch { return TraceMatch(hex.EncodeToString(t.ID[:])) }

// ParseTraceMatch reads the ID of a trace, or at least 8 digits that it begins with.
func ParseTraceMatch(s string) (TraceMatch, error) {
	if len(s) < leastTraceDigits || len(s) > traceDigits || strings.Trim(s, "0123456789abcdef") != "" {
		return "", errors.New("must be 8 to 32 hexadecimal digits in lower case, as in the header traceparent")
	}
	return TraceMatch(s), nil
}

// Has says whether a trace is the one, or one of those, that is asked for; "" asks for none.
func (m TraceMatch) Has(t *Trace) bool {
	if m == "" || !t.Known() {
		return false
	}
	var digits [traceDigits]byte
	hex.Encode(digits[:], t.ID[:])
	return string(digits[:len(m)]) == string(m)
}
