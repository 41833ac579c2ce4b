package store

import (
	"encoding/binary"

	"github.com/slowray/slowray/internal/observe"
)

// Records gives the time of each record of a frame, µs since 1970, in their order,
// without decoding them. A record that is cut off ends them.
func Records(frame []byte, f func(at int64) bool) {
	for len(frame) > 1 {
		kind := frame[0]
		size, n := binary.Uvarint(frame[1:])
		if n <= 0 || size > uint64(len(frame)-1-n) {
			return
		}
		entry := frame[1+n : 1+n+int(size)]
		frame = frame[1+n+int(size):]
		if kind == entryProcess {
			continue
		}
		at, _ := binary.Varint(entry)
		if !f(at) {
			return
		}
	}
}

// Decoder decodes the records of frames. What it gives is in memory that it uses
// again, and texts that come again and again are made once: in steady use a request
// costs no allocation. It is for one goroutine.
type Decoder struct {
	words   vocabulary
	known   map[string]observe.Identity // by entry
	procs   []observe.Identity          // of the frame
	request Request
	row     secondRow
	sum     sum
	second  Second
	finding Finding
}

// vocabulary are texts met before.
type vocabulary map[string]string

const (
	mostWords     = 4096 // then they are forgotten
	mostProcesses = 4096
)

func (w vocabulary) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	s, ok := w[string(b)]
	if !ok {
		if len(w) >= mostWords {
			clear(w)
		}
		s = string(b)
		w[s] = s
	}
	return s
}

// each gives the records of a frame from number skip on, n of them at most, until f
// is false.
func (d *Decoder) each(frame []byte, skip, n int, f func(record int, kind byte, entry []byte) bool) {
	if d.words == nil {
		d.words, d.known = vocabulary{}, map[string]observe.Identity{}
	}
	d.procs = d.procs[:0]
	for record := 0; len(frame) > 1 && record < skip+n; {
		kind := frame[0]
		size, k := binary.Uvarint(frame[1:])
		if k <= 0 || size > uint64(len(frame)-1-k) {
			return
		}
		entry := frame[1+k : 1+k+int(size)]
		frame = frame[1+k+int(size):]
		if kind == entryProcess {
			d.procs = append(d.procs, d.process(entry))
			continue
		}
		if record >= skip && !f(record, kind, entry) {
			return
		}
		record++
	}
}

func (d *Decoder) process(entry []byte) observe.Identity {
	p, ok := d.known[string(entry)]
	if !ok {
		if len(d.known) >= mostProcesses {
			clear(d.known)
		}
		p, _ = decodeProcess(entry)
		d.known[string(entry)] = p
	}
	return p
}

// Requests gives the requests of a frame, with the numbers that they have as
// records of it: n of them at most, from number skip on. What is malformed is left
// out. A Request is f's until f returns.
func (d *Decoder) Requests(frame []byte, skip, n int, f func(record int, r *Request) bool) {
	d.each(frame, skip, n, func(record int, kind byte, entry []byte) bool {
		if kind != entryRequest {
			return true
		}
		r := &d.request
		if !decodeRequestWith(entry, r, d.procs, d.words) {
			return true
		}
		return f(record, r)
	})
}

// Seconds is Requests for what endpoints did in a second, without the histograms of
// parts other than Server.
func (d *Decoder) Seconds(frame []byte, skip, n int, f func(record int, s *Second) bool) {
	d.each(frame, skip, n, func(record int, kind byte, entry []byte) bool {
		if kind != entrySecond || !decodeSecondWith(entry, &d.row, wholeHists, d.words) {
			return true
		}
		d.sum.reset()
		d.sum.add(&d.row)
		d.sum.secondInto(d.row.At/1e6, &d.second)
		return f(record, &d.second)
	})
}

// Findings is Requests for findings.
func (d *Decoder) Findings(frame []byte, skip, n int, f func(record int, x *Finding) bool) {
	d.each(frame, skip, n, func(record int, kind byte, entry []byte) bool {
		if kind != entryFinding {
			return true
		}
		var ok bool
		if d.finding, _, ok = readFinding(entry); !ok {
			return true
		}
		return f(record, &d.finding)
	})
}
