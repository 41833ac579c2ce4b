package request

import (
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/slowray/slowray/internal/observe"
)

// block is struct header_block: a piece of a header block of HTTP/2.
type block struct {
	headers uint64
	number  uint32
	stream  uint32
	len     uint16
	answers uint8
	flags   uint8
	_       uint32
}

const (
	blockBegins = 1
	blockEnds   = 2
	blockClosed = 4

	blockHeader  = int(unsafe.Sizeof(block{}))
	blocksRing   = 4 << 20 // bytes: some 20,000 blocks of the usual size between two polls
	mostSpeakers = 1024    // as many connections as the programs tell apart
	mostBlock    = 16 << 10
	// mostStreams are remembered until their record comes; of those that get none, where not
	// all have one, any gives way.
	mostStreams = 16 << 10
)

// headers are what the connections of HTTP/2 say in their header blocks: only with labels.
type headers struct {
	pieces   *ebpf.Map // of all programs that see frames
	ring     *ringbuf.Reader
	loaded   uint64 // how often such programs were
	raw      ringbuf.Record
	speakers map[uint64]*speaker
	streams  map[stream]*said
	free     []*said
	other    said     // that nobody asks for
	over     []uint64 // closed: forgotten after the records that came with it
	lost     uint64   // blocks that were not seen, or not whole, at the least
}

// open makes what pieces come through.
func (h *headers) open(spec *ebpf.MapSpec) (err error) {
	if h.ring != nil {
		return nil
	}
	spec.MaxEntries = blocksRing
	if h.pieces, err = ebpf.NewMap(spec); err != nil {
		return err
	}
	h.ring, err = ringbuf.NewReader(h.pieces)
	return err
}

// first is where programs that are loaded now begin to number connections: no number is
// given twice.
func (h *headers) first() uint64 {
	h.loaded++
	return h.loaded << 48
}

// stream is a request of a connection.
type stream struct {
	headers uint64
	id      uint32
}

// speaker is a connection: what asks, and what answers.
type speaker [2]way

// way is one direction of a connection.
type way struct {
	unpacker
	number uint32 // of the last block
	broken bool   // the block under way lacks a piece
	begun  []byte // the pieces of a block so far
}

// poll takes in the pieces that there are. Those of connections that closed before the last
// poll are forgotten: their records have been read since.
func (h *headers) poll() {
	if h.ring == nil {
		return
	}
	for _, id := range h.over {
		delete(h.speakers, id)
	}
	h.over = h.over[:0]
	h.ring.SetDeadline(time.Now())
	for h.ring.ReadInto(&h.raw) == nil {
		h.take(h.raw.RawSample)
	}
}

// take takes a piece in.
func (h *headers) take(raw []byte) {
	if len(raw) < blockHeader {
		return
	}
	b := (*block)(unsafe.Pointer(&raw[0]))
	if b.flags&blockClosed != 0 {
		h.over = append(h.over, b.headers)
		return
	}
	s := h.speakers[b.headers]
	if s == nil {
		if len(h.speakers) >= mostSpeakers {
			h.lost++
			return
		}
		if h.speakers == nil {
			h.speakers, h.streams = map[uint64]*speaker{}, map[stream]*said{}
		}
		s = &speaker{}
		h.speakers[b.headers] = s
	}
	w, piece := &s[b.answers&1], raw[blockHeader:]
	whole, lost := w.take(b, piece[:min(int(b.len), len(piece))])
	if whole != nil && !w.unpack(whole, h.said(stream{b.headers, b.stream}, b.answers == 0)) {
		lost++
	}
	h.lost += lost
}

// said is where what a stream says is noted.
func (h *headers) said(id stream, asks bool) *said {
	of := h.streams[id]
	switch {
	case of != nil:
		return of
	case !asks:
		h.other = said{}
		return &h.other
	}
	if len(h.streams) >= mostStreams {
		for any := range h.streams {
			h.forget(any)
			break
		}
	}
	if n := len(h.free); n > 0 {
		of, h.free = h.free[n-1], h.free[:n-1]
		*of = said{}
	} else {
		of = &said{}
	}
	h.streams[id] = of
	return of
}

func (h *headers) forget(id stream) {
	if of := h.streams[id]; of != nil {
		h.free = append(h.free, of)
		delete(h.streams, id)
	}
}

// take takes a piece in. It gives the block that the piece makes whole, which is valid until
// the next piece comes, and how many blocks were not seen, or not whole.
func (w *way) take(b *block, piece []byte) (whole []byte, lost uint64) {
	if b.flags&blockBegins != 0 {
		if len(w.begun) > 0 || w.broken || b.number != w.number+1 {
			lost++
			w.lost()
		}
		w.number, w.begun, w.broken = b.number, w.begun[:0], false
	} else if b.number != w.number || w.broken || len(w.begun) == 0 {
		w.broken = true
		return nil, 0
	}
	if len(w.begun)+len(piece) > mostBlock {
		w.begun, w.broken = w.begun[:0], true
		return nil, lost
	}
	if b.flags&blockEnds != 0 && len(w.begun) == 0 {
		return piece, lost
	}
	w.begun = append(w.begun, piece...)
	if b.flags&blockEnds == 0 {
		return nil, lost
	}
	whole, w.begun = w.begun, w.begun[:0]
	return whole, lost
}

// readHeaders adds what the stream of a record said to the request.
func (r *Recorder) readHeaders(rec *record) {
	h := &r.headers
	if h.ring == nil {
		return
	}
	id := stream{rec.headers, 2*rec.seq - 1}
	s := h.streams[id]
	if s == nil {
		return
	}
	q := &r.request
	q.Label = s.label()
	if q.Trace = s.trace; !q.Trace.Known() {
		q.Trace = s.guess
	}
	if s.status > 0 && s.status/100 == max(q.HTTP/100, s.status/100) {
		q.HTTP = s.status
	}
	if s.grpc > 0 && q.Status == observe.StatusUnknown && q.Flags&observe.FlagUnfinished == 0 {
		q.Status = observe.StatusOK
		if s.grpc > 1 {
			q.Status = observe.StatusError
		}
	}
	if q.Flags&observe.FlagUnfinished == 0 {
		h.forget(id)
	}
}

func (h *headers) close() {
	if h.ring != nil {
		h.ring.Close()
	}
	if h.pieces != nil {
		h.pieces.Close()
	}
	*h = headers{}
}
