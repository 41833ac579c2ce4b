// Package framelog says when frames of HTTP/2 pass a connection of a program of the tests,
// which has it in the clear: what slowray says of its streams is held against that.
package framelog

import (
	"cmp"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/net/http2/hpack"
)

// Stream is one that is over. Times are ns of CLOCK_MONOTONIC, at which this end has read a
// frame or begins to write it.
type Stream struct {
	Port     int // of the asking end
	ID       uint32
	First    int64 // HEADERS of the request
	Asked    int64 // its last frame, or where the answer began before that
	Answered int64 // HEADERS of the answer; 0 = none
	Ended    int64
	Path     string
	GRPC     string // status
	Reset    string // who reset it, caller or server
}

// Conn calls a function for each stream that is over.
type Conn struct {
	net.Conn
	served  bool
	port    int
	over    func(*Stream)
	mu      sync.Mutex
	ways    [2]way
	streams map[uint32]*Stream
}

// The ways of a connection.
const (
	asks = iota
	answers
)

// way goes from frame to frame in one direction.
type way struct {
	head  []byte
	rest  int // of the payload
	block []byte
	hpack *hpack.Decoder
	begun int64   // when the header of the frame under way passed; 0 = just now
	whole []frame // just now
}

// frame is what a frame says.
type frame struct {
	kind, flags byte
	id          uint32
	when        int64 // its header passed; 0 = just now
	path, grpc  string
}

// preface is what the asking end says first (RFC 9113, 3.4).
const preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

// New notes what passes conn. served says that it is the answering end's.
func New(conn net.Conn, served bool, over func(*Stream)) *Conn {
	caller := conn.LocalAddr()
	if served {
		caller = conn.RemoteAddr()
	}
	c := &Conn{Conn: conn, served: served, port: caller.(*net.TCPAddr).Port, over: over, streams: map[uint32]*Stream{}}
	for i := range c.ways {
		c.ways[i].hpack = hpack.NewDecoder(4096, nil)
	}
	c.ways[asks].rest = preface
	return c
}

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	when, which := Now(), answers
	if c.served {
		which = asks
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take(which, b[:n])
	c.passed(which, when)
	return n, err
}

// Write notes the time last: what has to be done for it first takes a while.
func (c *Conn) Write(b []byte) (int, error) {
	which := asks
	if c.served {
		which = answers
	}
	c.mu.Lock()
	c.take(which, b)
	c.passed(which, Now())
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Now is CLOCK_MONOTONIC, ns.
func Now() int64 {
	var t syscall.Timespec
	const monotonic = 1
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

const frameHeader = 9

// take goes through bytes.
func (c *Conn) take(which int, b []byte) {
	w := &c.ways[which]
	for len(b) > 0 {
		if n := min(w.rest, len(b)); n > 0 {
			if len(w.head) > 0 && w.head[3] == headers {
				w.block = append(w.block, b[:n]...)
			}
			w.rest -= n
			b = b[n:]
			if w.rest == 0 && len(w.head) > 0 {
				w.end()
			}
			continue
		}
		if len(w.head) == frameHeader {
			w.head = w.head[:0]
		}
		n := min(frameHeader-len(w.head), len(b))
		w.head = append(w.head, b[:n]...)
		b = b[n:]
		if len(w.head) == frameHeader {
			w.begun = 0
			w.rest = int(w.head[0])<<16 | int(w.head[1])<<8 | int(w.head[2])
			if w.rest == 0 {
				w.end()
			}
		}
	}
}

// Types of frames and flags (RFC 9113, 6).
const (
	headers    = 1
	reset      = 3
	endStream  = 1
	endHeaders = 4
	padded     = 8
	priority   = 32
)

// end notes a frame that is whole.
func (w *way) end() {
	f := frame{kind: w.head[3], flags: w.head[4], id: binary.BigEndian.Uint32(w.head[5:]), when: w.begun}
	if f.kind == headers {
		f.unpack(w.hpack, w.block)
		w.block = w.block[:0]
	}
	w.whole = append(w.whole, f)
}

// passed says when what was taken did.
func (c *Conn) passed(which int, when int64) {
	w := &c.ways[which]
	if w.begun == 0 {
		w.begun = when
	}
	for i := range w.whole {
		if w.whole[i].when == 0 {
			w.whole[i].when = when
		}
		c.say(which, &w.whole[i])
	}
	w.whole = w.whole[:0]
}

// say takes a frame in that has passed.
func (c *Conn) say(which int, f *frame) {
	s := c.streams[f.id]
	if s == nil && which == asks && f.kind == headers {
		s = &Stream{Port: c.port, ID: f.id, First: f.when}
		c.streams[f.id] = s
	}
	if s == nil {
		return
	}
	over := f.kind <= headers && f.flags&endStream != 0
	switch {
	case f.kind == reset:
		s.Reset = "server"
		if which == asks {
			s.Reset = "caller"
		}
	case which == asks && over:
		s.Asked = cmp.Or(s.Asked, f.when)
	case which == answers && f.kind == headers:
		s.Answered = cmp.Or(s.Answered, f.when)
		s.Asked = cmp.Or(s.Asked, s.Answered)
	}
	s.Path, s.GRPC = cmp.Or(s.Path, f.path), cmp.Or(s.GRPC, f.grpc)
	if f.kind == reset || which == answers && over {
		s.Ended = f.when
		delete(c.streams, f.id)
		c.over(s)
	}
}

// unpack reads what of a header block is wanted. Peers here have each in one frame.
func (f *frame) unpack(d *hpack.Decoder, block []byte) {
	if f.flags&endHeaders == 0 {
		panic("framelog: a header block in more than one frame")
	}
	if f.flags&padded != 0 {
		block = block[1 : len(block)-int(block[0])]
	}
	if f.flags&priority != 0 {
		block = block[5:]
	}
	fields, err := d.DecodeFull(block)
	if err != nil {
		panic(err)
	}
	for _, x := range fields {
		switch x.Name {
		case ":path":
			f.path, _, _ = strings.Cut(x.Value, "?")
		case "grpc-status":
			f.grpc = x.Value
		}
	}
}
