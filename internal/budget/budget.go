package budget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"
)

// Limits are the amounts one look at one source may take. A field that is zero
// or negative takes the value of [Default].
type Limits struct {
	Bytes    int64         // read from files, memory and packets
	Unpacked int64         // made by decompression and by expansion of variables or macros, bytes
	Files    int64         // opened: includes, logs, segments, debug files
	Nodes    int64         // parsed: directives, symbols, DIEs, flows, rows
	Depth    int           // nested: includes, blocks, types
	Wall     time.Duration // from New on
}

// Default is enough for the largest real source of its kind that is known, a
// Java or C++ server's binary with its debug information apart: readers of
// those name limits of their own.
var Default = Limits{
	Bytes:    64 << 20,
	Unpacked: 64 << 20,
	Files:    4096,
	Nodes:    1 << 20,
	Depth:    64,
	Wall:     time.Second,
}

// Exceeded is the error of a reader that was stopped by its budget.
type Exceeded struct {
	What  string // "bytes", "unpacked bytes", "files", "items", "levels", "time"
	Limit string // with its unit
}

// Error says which limit was reached.
func (e *Exceeded) Error() string {
	return fmt.Sprintf("over the reading budget: more than %s", e.Limit)
}

// IsExceeded says that err comes from a budget, not from what was read.
func IsExceeded(err error) bool {
	var e *Exceeded
	return errors.As(err, &e)
}

// Budget is what is left of some [Limits]. It may be used by several goroutines.
// The first limit that is reached ends it: from then on every call returns that
// error, so that a parser which goes on after an error ends soon.
type Budget struct {
	ctx      context.Context
	parent   *Budget // of a part: what it takes is taken there too
	limits   Limits
	end      time.Time
	bytes    atomic.Int64
	unpacked atomic.Int64
	files    atomic.Int64
	nodes    atomic.Int64
	failed   atomic.Pointer[error]
}

// or fills the limits of l that are zero or negative from those of another.
func (l Limits) or(of Limits) Limits {
	if l.Bytes <= 0 {
		l.Bytes = of.Bytes
	}
	if l.Unpacked <= 0 {
		l.Unpacked = of.Unpacked
	}
	if l.Files <= 0 {
		l.Files = of.Files
	}
	if l.Nodes <= 0 {
		l.Nodes = of.Nodes
	}
	if l.Depth <= 0 {
		l.Depth = of.Depth
	}
	if l.Wall <= 0 {
		l.Wall = of.Wall
	}
	return l
}

// New starts a budget. The end of ctx ends it too, with the error of ctx.
func New(ctx context.Context, l Limits) *Budget {
	l = l.or(Default)
	return &Budget{ctx: ctx, limits: l, end: time.Now().Add(l.Wall)}
}

// Sub is a part of b: what it takes is taken from b too, and the end of b ends
// it, while its own end leaves b to others. So one source of many can be given
// its share, and all of them together stay within theirs. A limit that is zero
// or negative is that of b.
func (b *Budget) Sub(l Limits) *Budget {
	end := b.end
	if l.Wall > 0 {
		if own := time.Now().Add(l.Wall); own.Before(end) {
			end = own
		}
	}
	return &Budget{ctx: b.ctx, parent: b, limits: l.or(b.limits), end: end}
}

// Share is the part of b that the next of n readers may take, who take turns: an
// nth of all that is left, but of its levels. What one leaves is there for those
// after it, so that one that takes all it may cannot starve the others.
func (b *Budget) Share(n int) *Budget {
	l := b.nth(n)
	l.Wall = max(1, b.TimeLeft()/time.Duration(max(n, 1)))
	return b.Sub(l)
}

// Each is the part of b for one of n readers that read at the same time: an nth of all
// that is left, but of its levels and its time, which pass for all of them.
func (b *Budget) Each(n int) *Budget { return b.Sub(b.nth(n)) }

func (b *Budget) nth(n int) Limits {
	share := func(a amount) int64 { return max(1, b.left(a)/int64(max(n, 1))) }
	return Limits{Bytes: share(bytesRead), Unpacked: share(bytesUnpacked), Files: share(filesOpened), Nodes: share(itemsParsed)}
}

// Own says that a limit of b itself was reached, not one of what it is a part
// of nor the end of its context: what was read is to blame, and would be again.
func (b *Budget) Own() bool {
	p := b.failed.Load()
	return p != nil && IsExceeded(*p) && (b.parent == nil || b.parent.Err() == nil)
}

// Err is the limit that was reached, or nil. It also looks at the clock and at
// the context, so loops that take nothing else call it now and then.
func (b *Budget) Err() error {
	if p := b.failed.Load(); p != nil {
		return *p
	}
	if err := b.ctx.Err(); err != nil {
		return b.fail(err)
	}
	if b.parent != nil {
		if err := b.parent.Err(); err != nil {
			return b.fail(err)
		}
	}
	if time.Now().After(b.end) {
		return b.fail(&Exceeded{"time", duration(b.limits.Wall)})
	}
	return nil
}

// Read takes n bytes that are about to be read.
func (b *Budget) Read(n int64) error { return b.take(bytesRead, n) }

// Unpack takes n bytes that decompression or expansion is about to make.
func (b *Budget) Unpack(n int64) error { return b.take(bytesUnpacked, n) }

// File takes one file that is about to be opened.
func (b *Budget) File() error { return b.take(filesOpened, 1) }

// clockEvery is how many items are parsed between two looks at the clock: a look
// costs as much as some ten items.
const clockEvery = 256

// Node takes one parsed item.
func (b *Budget) Node() error { return b.Nodes(1) }

// Nodes takes n parsed items.
func (b *Budget) Nodes(n int64) error { return b.take(itemsParsed, n) }

// Depth says whether the level, counted from 0, may be entered.
func (b *Budget) Depth(level int) error {
	if level < 0 || level >= b.limits.Depth {
		return b.fail(&Exceeded{"levels", fmt.Sprintf("%d levels", b.limits.Depth)})
	}
	return nil
}

// Left is how many bytes may still be read.
func (b *Budget) Left() int64 { return b.left(bytesRead) }

func (b *Budget) left(a amount) int64 {
	used, limit, _, _ := a.of(b)
	left := max(0, limit-used.Load())
	if b.parent != nil {
		left = min(left, b.parent.left(a))
	}
	return left
}

// TimeLeft is how much of its time is left; 0 when there is none.
func (b *Budget) TimeLeft() time.Duration { return max(0, time.Until(b.end)) }

// amount is what is counted.
type amount int

const (
	bytesRead amount = iota
	bytesUnpacked
	filesOpened
	itemsParsed
)

// of is what b has used of an amount, its limit, its name, and how much is used
// between two looks at the clock.
func (a amount) of(b *Budget) (used *atomic.Int64, limit int64, name string, every int64) {
	switch a {
	case bytesRead:
		return &b.bytes, b.limits.Bytes, "bytes", 1
	case bytesUnpacked:
		return &b.unpacked, b.limits.Unpacked, "unpacked bytes", 1
	case filesOpened:
		return &b.files, b.limits.Files, "files", 1
	}
	return &b.nodes, b.limits.Nodes, "items", clockEvery
}

// text writes a limit with its unit.
func (a amount) text(n int64) string {
	_, _, name, _ := a.of(&Budget{})
	if a != bytesRead && a != bytesUnpacked || n < 1<<20 {
		return fmt.Sprintf("%d %s", n, name)
	}
	return fmt.Sprintf("%.3g MB%s", float64(n)/(1<<20), map[amount]string{bytesUnpacked: " unpacked"}[a])
}

// duration writes a limit of time, to the millisecond where it is longer.
func duration(d time.Duration) string {
	if d > time.Millisecond {
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

func (b *Budget) take(a amount, n int64) error {
	if p := b.failed.Load(); p != nil {
		return *p
	}
	used, limit, name, every := a.of(b)
	if n < 0 || n > limit {
		n = limit + 1
		if limit == math.MaxInt64 {
			n = limit
		}
	}
	now := used.Add(n)
	if now > limit || now < 0 {
		// Of what is not given nothing is taken from the whole.
		return b.fail(&Exceeded{name, a.text(limit)})
	}
	if b.parent != nil {
		if err := b.parent.take(a, n); err != nil {
			return b.fail(err)
		}
	}
	if now/every != (now-n)/every {
		return b.Err()
	}
	return nil
}

func (b *Budget) fail(err error) error {
	b.failed.CompareAndSwap(nil, &err)
	return *b.failed.Load()
}

// Reader counts what is read from r as bytes of b.
func (b *Budget) Reader(r io.Reader) io.Reader { return &reader{r, b.Read} }

// Unpacked counts what is read from r, a decompressor, as unpacked bytes of b.
func (b *Budget) Unpacked(r io.Reader) io.Reader { return &reader{r, b.Unpack} }

type reader struct {
	r    io.Reader
	take func(int64) error
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if over := r.take(int64(n)); over != nil {
		return 0, over
	}
	return n, err
}

// ReaderAt counts what is read from r as bytes of b; a part that is read twice
// counts twice.
func (b *Budget) ReaderAt(r io.ReaderAt) io.ReaderAt { return &readerAt{r, b} }

type readerAt struct {
	r io.ReaderAt
	b *Budget
}

func (r *readerAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.b.Read(int64(len(p))); err != nil {
		return 0, err
	}
	return r.r.ReadAt(p, off)
}

// ReadAll reads r to its end, at most to what is left of b.
func (b *Budget) ReadAll(r io.Reader) ([]byte, error) { return io.ReadAll(b.Reader(r)) }
