package ship

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// Bounds of a batch. It ends with the first frame that exceeds them.
const (
	batchRecords = 20_000
	batchBytes   = 2 << 20
	// keptBytes is how much memory a stream keeps when its batches are small.
	keptBytes = 512 << 10
)

const microsOfDay = 24 * 60 * 60 * 1e6

// dayOf is the day of a moment, µs since 1970, in days since then.
func dayOf(us int64) int {
	day := us / microsOfDay
	if us%microsOfDay < 0 {
		day--
	}
	return int(day)
}

// piece is a frame in memory, and which of its records are in the batch.
type piece struct {
	from, to   int    // of builder.buf
	first      uint32 // the number in the log of the frame's first record
	skip, take int
}

// builder makes batches of the log of a stream. A batch is of one log.
type builder struct {
	stream fleet.Stream
	buf    []byte
	pieces []piece
	batch  fleet.Batch
	oldest int64 // µs since 1970: the time of the first record
	full   bool  // nothing more can be in the batch
	most   int   // records of a batch, exactly, where the target bears no larger ones; 0: as above

	log     uint64 // 0: none is open
	file    *store.LogFile
	next    uint32 // the number of the first record that is in no batch yet
	frame   int64  // where the frame begins that is to be read next,
	first   uint32 // and the number of its first record
	left    uint64 // the log that was closed last, when all of it up to leftAt was sent
	leftAt  int64
	decoder store.Decoder
}

// open goes to a record of a log.
func (b *builder) open(dir folder, log uint64, next uint32) error {
	b.close()
	f, err := dir.log(store.LogName(string(b.stream), log))
	if err != nil {
		return err
	}
	b.file, b.log, b.next, b.frame, b.first = f, log, max(next, 1), f.Offset(), 1
	return nil
}

func (b *builder) close() {
	if b.file != nil {
		b.file.Close()
		b.left, b.leftAt = b.log, b.frame
		if b.batch.Count > 0 {
			b.left = 0
		}
	}
	b.file, b.log = nil, 0
	b.drop()
}

// drop forgets the batch.
func (b *builder) drop() {
	if cap(b.buf) > keptBytes && len(b.buf) < keptBytes/2 {
		b.buf = nil // there was much to send, and now there is little
	}
	b.buf, b.pieces, b.batch, b.full, b.oldest = b.buf[:0], b.pieces[:0], fleet.Batch{}, false, 0
}

// extend adds what is in the first limit bytes of the log, up to a record's number;
// negative is all, and 0 is no bound. end says that there is no more up to limit.
func (b *builder) extend(limit int64, last uint32) (end bool, err error) {
	for !b.full {
		from := len(b.buf)
		b.file.GoTo(b.frame)
		b.buf, err = b.file.Next(b.buf, limit)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		b.take(from, last)
	}
	return false, nil
}

// take puts the records of the frame that was read last into the batch.
func (b *builder) take(from int, last uint32) {
	p := piece{from: from, to: len(b.buf), first: b.first}
	number, whole := b.first, true
	store.Records(b.buf[from:], func(us int64) bool {
		switch {
		case number < b.next:
			p.skip++
		case last != 0 && number > last || b.most != 0 && b.batch.Count+p.take >= b.most || b.batch.Count+p.take > 0 && dayOf(us) != b.batch.Day:
			whole, b.full = false, true
			return false
		default:
			if b.batch.Count+p.take == 0 {
				b.batch.Day, b.oldest = dayOf(us), us
			}
			p.take++
		}
		number++
		return true
	})
	if p.take > 0 {
		if b.batch.Count == 0 {
			b.batch.First = at(b.log, b.next)
		}
		b.pieces = append(b.pieces, p)
		b.batch.Count += p.take
		b.next = number
		b.batch.Last = at(b.log, number-1)
	} else {
		b.buf = b.buf[:from]
	}
	if whole {
		b.frame, b.first = b.file.Offset(), number
	}
	if b.batch.Count >= batchRecords || len(b.buf) >= batchBytes || last != 0 && b.batch.Count > 0 && numberOf(b.batch.Last) == last {
		b.full = true
	}
}

// fixed is the batch as it is sent.
func (b *builder) fixed(host *fleet.Host) *fleet.Batch {
	out := &b.batch
	out.Host, out.Stream = host, b.stream
	out.Requests, out.Seconds, out.Findings = nil, nil, nil
	switch b.stream {
	case fleet.Requests:
		out.Requests = records(b, (*store.Decoder).Requests)
	case fleet.Seconds:
		out.Seconds = records(b, (*store.Decoder).Seconds)
	case fleet.Findings:
		out.Findings = records(b, (*store.Decoder).Findings)
	}
	return out
}

// records are the records of the batch, decoded by one method of the decoder.
func records[T any](b *builder, decode func(*store.Decoder, []byte, int, int, func(int, *T) bool)) iter.Seq2[fleet.Position, *T] {
	return func(yield func(fleet.Position, *T) bool) {
		more := true
		for _, p := range b.pieces {
			decode(&b.decoder, b.buf[p.from:p.to], p.skip, p.take, func(record int, r *T) bool {
				more = yield(at(b.log, p.first+uint32(record)), r)
				return more
			})
			if !more {
				return
			}
		}
	}
}

// count counts the records of a log after one with a number.
func count(dir folder, name string, after uint32) (n uint64, last uint32, err error) {
	f, err := dir.log(name)
	if errors.Is(err, store.ErrNotLog) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var frame []byte
	for {
		frame, err = f.Next(frame[:0], -1)
		if errors.Is(err, io.EOF) {
			return n, last, nil
		}
		if err != nil {
			return n, last, fmt.Errorf("%s: %w", name, err)
		}
		store.Records(frame, func(int64) bool {
			last++
			if last > after {
				n++
			}
			return true
		})
	}
}
