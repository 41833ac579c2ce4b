package request

import (
	"bytes"
	"unsafe"

	"github.com/slowray/slowray/internal/observe"
)

// head is struct head: the first bytes of a request.
type head struct {
	len  uint32
	of   uint32
	text [headBytes]byte
}

const (
	headBytes = 944
	headSize  = int(unsafe.Sizeof(head{}))
)

// head is what the slot of a record has of its request's first bytes.
func (r *Recorder) head(cpu int, number uint64) []byte {
	h := (*head)(unsafe.Pointer(&r.heads[(cpu*int(r.slots)+int(number&(r.slots-1)))*headSize]))
	return h.text[:min(int(h.len), headBytes)]
}

// What is kept of a request besides its record, see record.kept.
const (
	keptHead = 1 << iota
	keptContext
)

// readHead finds what was asked for, and the trace, in a request's first bytes. whole is
// false where the headers go on beyond, and no trace came before.
func (r *Recorder) readHead(rec *record, first []byte) (whole bool) {
	q := &r.request
	q.Label = label(rec.proto, first[:min(len(first), labelBytes)])
	if rec.proto != protoHTTP1 {
		return true
	}
	trace, whole := traceOf(first)
	if single(q) {
		q.Trace = trace
	}
	return whole || trace.Known()
}

// single says that there is one request in a record: of several it is not known whose head
// and context were kept.
func single(q *observe.Request) bool {
	return q.Requests <= 1 && q.Flags&observe.FlagOverlapped == 0
}

var traceparent = []byte("traceparent")

// traceOf is the trace context in the header section of a request of HTTP/1.1; none where
// several contradict each other, as the standard has it. whole is false where none was
// found and the section goes on beyond first.
func traceOf(first []byte) (trace observe.Trace, whole bool) {
	_, rest, ok := bytes.Cut(first, []byte{'\n'})
	if request := first[:len(first)-len(rest)]; !ok || !bytes.Contains(request, []byte(" HTTP/1.")) {
		return observe.Trace{}, ok
	}
	for {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		if !ended {
			return trace, trace.Known()
		}
		line, rest = bytes.TrimSuffix(line, []byte{'\r'}), after
		if len(line) == 0 {
			return trace, true
		}
		if len(line) <= len(traceparent) || line[len(traceparent)] != ':' || !bytes.EqualFold(line[:len(traceparent)], traceparent) {
			continue
		}
		t, ok := observe.ParseTraceparent(bytes.Trim(line[len(traceparent)+1:], " \t"))
		if !ok || trace.Known() && t != trace {
			return observe.Trace{}, true
		}
		trace = t
	}
}
