package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"regexp"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/schema"
)

// A log is a header and frames. A frame is the length of its payload and the
// CRC32C of it, both 32 bits little-endian, and the payload: entries, each its
// kind, its length and its bytes. A frame needs no other: the processes that
// its requests belong to are entries of their own in it, numbered from 0.
//
// What a power cut leaves may end anywhere, also with zeros or with what was on
// the disk before. All up to the first frame that is not whole counts.
//
// Another form of an entry is another number in the header: a version that does not know
// it sets the log aside (see setAside), where it would lose the entries without a word.
// What testdata/history holds must still be read.

const (
	logMagic    = "slowray.log/4\n"
	logVersion  = len("slowray.log/")
	logOldest   = '1' // without workloads, as 2 is without the time of TLS and 3 without how a connection was opened: entries end before them, or have no such times
	frameHead   = 8
	frameFull   = 256 << 10 // bytes after which a frame is ended
	maxFrame    = 16 << 20
	maxEntry    = 8 << 20
	maxLogBytes = 256 << 20 // of a log that is read at all; a writer's are far smaller
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Kinds of entries.
const (
	entryProcess byte = 1 + iota
	entryRequest
	entrySecond
	entryFinding
)

// batch is a number of frames in memory, of which the last is still open. Its
// memory is bounded and is used again.
type batch struct {
	buf     []byte
	limit   int
	open    int // where the open frame begins, -1 when none is
	entries uint64
	frame   uint32 // the number of the open frame, which tells what in recent is of it
	procs   map[observe.Identity]uint32
	recent  [64]struct {
		frame, number uint32
		process       observe.Identity
	}
	scratch []byte
}

func newBatch(limit int) *batch {
	return &batch{limit: limit, open: -1, procs: map[observe.Identity]uint32{}}
}

// put appends an entry; false when there is no room.
func (b *batch) put(kind byte, entry []byte) bool {
	if len(entry) > maxEntry || len(b.buf)+len(entry)+frameHead+16 > b.limit {
		return false
	}
	b.begin()
	b.append(kind, entry)
	b.entries++
	if len(b.buf)-b.open >= frameFull {
		b.seal()
	}
	return true
}

// putRequest appends a request and, where its frame does not have it, its process.
func (b *batch) putRequest(r *Request) bool {
	b.begin()
	before, known := len(b.buf), len(b.procs)
	number, peer := b.process(&r.Process, r.PID), uint32(0)
	fresh := len(b.procs) > known
	if r.PeerWorkload != (observe.Workload{}) {
		peer = 1 + b.number(&observe.Identity{Workload: r.PeerWorkload})
	}
	b.scratch = appendRequest(b.scratch[:0], r, number, peer)
	if len(b.scratch) > maxEntry || len(b.buf)+len(b.scratch)+16 > b.limit {
		b.buf = b.buf[:before]
		// The frame does not have the processes after all.
		for p, n := range b.procs {
			if int(n) >= known {
				delete(b.procs, p)
			}
		}
		if fresh {
			b.recent[uint(r.PID)%uint(len(b.recent))].frame = 0
		}
		if len(b.buf) == b.open+frameHead {
			b.buf, b.open = b.buf[:b.open], -1
		}
		return false
	}
	b.append(entryRequest, b.scratch)
	b.entries++
	if len(b.buf)-b.open >= frameFull {
		b.seal()
	}
	return true
}

// process is the number of a process in the open frame. A process is met again
// and again: that it is the one last seen under its pid costs five comparisons of
// pointers, mostly.
func (b *batch) process(p *observe.Identity, pid int) uint32 {
	slot := &b.recent[uint(pid)%uint(len(b.recent))]
	if slot.frame == b.frame && slot.process == *p {
		return slot.number
	}
	number := b.number(p)
	slot.frame, slot.number, slot.process = b.frame, number, *p
	return number
}

// number is that of a process in the open frame, or of a workload at another end, which
// is written like one.
func (b *batch) number(p *observe.Identity) uint32 {
	number, ok := b.procs[*p]
	if ok {
		return number
	}
	number = uint32(len(b.procs))
	b.procs[*p] = number
	e := encoder{b.scratch[:0]}
	for _, s := range [...]string{p.Comm, p.Cgroup, p.Container, p.ContainerName, p.Unit} {
		e.text(s)
	}
	if w := p.Workload; w != (observe.Workload{}) {
		for _, f := range schema.WorkloadFields(&w) {
			e.text(*f.Value)
		}
		if w.Service != "" {
			e.text(w.Service)
		}
	}
	b.scratch = e.b
	b.append(entryProcess, b.scratch)
	return number
}

func (b *batch) begin() {
	if b.open >= 0 {
		return
	}
	b.open = len(b.buf)
	b.buf = append(b.buf, make([]byte, frameHead)...)
	b.frame++
	clear(b.procs)
}

func (b *batch) append(kind byte, entry []byte) {
	b.buf = append(b.buf, kind)
	b.buf = binary.AppendUvarint(b.buf, uint64(len(entry)))
	b.buf = append(b.buf, entry...)
}

// seal ends the open frame.
func (b *batch) seal() {
	if b.open < 0 {
		return
	}
	payload := b.buf[b.open+frameHead:]
	binary.LittleEndian.PutUint32(b.buf[b.open:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b.buf[b.open+4:], crc32.Checksum(payload, castagnoli))
	b.open = -1
}

func (b *batch) reset() { b.buf, b.open, b.entries = b.buf[:0], -1, 0 }

// logData is a log in memory, as far as it is whole.
type logData struct {
	frames [][]byte // payloads
	whole  int64    // bytes up to the end of the last whole frame
	torn   int64    // bytes after that
}

// errNotLog is for a file that has not even the header of a log.
var errNotLog = errors.New("not a log of slowray")

// readLog reads a log, also one that is being written to.
func readLog(root *os.Root, path string) (logData, error) {
	f, err := safefile.OpenRegular(root, path)
	if err != nil {
		return logData{}, err
	}
	defer f.Close()
	return readLogFrom(f, pathIn(root, path))
}

func readLogFrom(f *os.File, path string) (logData, error) {
	st, err := f.Stat()
	switch {
	case err != nil:
		return logData{}, err
	case !st.Mode().IsRegular():
		return logData{}, fmt.Errorf("%s: not a regular file", path)
	case st.Size() > maxLogBytes:
		return logData{}, fmt.Errorf("%s: %d bytes are more than any log has", path, st.Size())
	}
	data := make([]byte, st.Size())
	n, err := io.ReadFull(io.NewSectionReader(f, 0, st.Size()), data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return logData{}, fmt.Errorf("%s: %w", path, err)
	}
	l, err := parseLog(data[:n])
	if err != nil {
		return l, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// isLog says that a header is that of a log which can be read.
func isLog(header []byte) bool {
	for i, c := range header {
		if !isLogByte(i, c) {
			return false
		}
	}
	return len(header) == len(logMagic)
}

// notLog says of which version a log is that cannot be read: after a downgrade.
func notLog(data []byte) error {
	if m := otherVersion.Find(data); m != nil {
		return fmt.Errorf("%w that this version reads (%s)", errNotLog, m[:len(m)-1])
	}
	return errNotLog
}

var otherVersion = regexp.MustCompile(`\A` + regexp.QuoteMeta(logMagic[:logVersion]) + `[0-9]{1,4}\n`)

// isLogByte says that a header which can be read may have this byte at i.
func isLogByte(i int, c byte) bool {
	return c == logMagic[i] || i == logVersion && c >= logOldest && c < logMagic[i]
}

// parseLog finds the whole frames of a log.
func parseLog(data []byte) (logData, error) {
	if len(data) < len(logMagic) || !isLog(data[:len(logMagic)]) {
		return logData{torn: int64(len(data))}, notLog(data)
	}
	l := logData{whole: int64(len(logMagic))}
	rest := data[len(logMagic):]
	for len(rest) >= frameHead {
		size := binary.LittleEndian.Uint32(rest)
		if size == 0 || size > maxFrame || int64(size) > int64(len(rest)-frameHead) {
			break
		}
		payload := rest[frameHead : frameHead+int(size)]
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			break
		}
		l.frames = append(l.frames, payload)
		l.whole += frameHead + int64(size)
		rest = rest[frameHead+int(size):]
	}
	l.torn = int64(len(rest))
	return l, nil
}

// entries gives the entries of a frame. One that is cut off ends them.
func entries(frame []byte, f func(kind byte, entry []byte) bool) {
	for len(frame) > 0 {
		kind := frame[0]
		d := decoder{b: frame[1:]}
		entry := d.bytes()
		if d.bad || !f(kind, entry) {
			return
		}
		frame = d.b
	}
}

// decodeProcess is the inverse of what batch.process writes.
func decodeProcess(entry []byte) (observe.Identity, bool) {
	d := decoder{b: entry}
	p := observe.Identity{Comm: d.text(), Cgroup: d.text(), Container: d.text(), ContainerName: d.text(), Unit: d.text()}
	if len(d.b) > 0 {
		for _, f := range schema.WorkloadFields(&p.Workload) {
			*f.Value = d.text()
		}
		if len(d.b) > 0 {
			p.Workload.Service = d.text()
		}
	}
	return p, d.ended()
}

// count is how many entries there are, processes not counted.
func (l *logData) count() (n uint64) {
	for _, frame := range l.frames {
		entries(frame, func(kind byte, _ []byte) bool {
			if kind != entryProcess {
				n++
			}
			return true
		})
	}
	return n
}
