package store

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// entryRef is an entry of a log, not decoded but for its time: a log of eight
// megabytes is twenty times as much once it is.
type entryRef struct {
	at    int64 // µs since 1970
	entry []byte
	base  int // of a request: the number of its frame's first process
}

// inOrder lists the entries of a kind that have a time in a range, in order of
// time, and the processes that requests belong to.
func (l *logData) inOrder(want byte, from, to int64) (refs []entryRef, procs []observe.Identity) {
	for _, frame := range l.frames {
		base := len(procs)
		entries(frame, func(kind byte, entry []byte) bool {
			if kind == entryProcess {
				p, _ := decodeProcess(entry)
				procs = append(procs, p)
			}
			if kind != want {
				return true
			}
			d := decoder{b: entry}
			at := d.int()
			if d.bad || at < from || at >= to {
				return true
			}
			if kind == entryRequest && int64(d.small()) >= int64(len(procs)-base) {
				return true
			}
			refs = append(refs, entryRef{at, entry, base})
			return true
		})
	}
	slices.SortStableFunc(refs, func(a, b entryRef) int { return cmp.Compare(a.at, b.at) })
	return refs, procs
}

// requestsOf decodes requests, in lots whose memory is used again. Malformed ones
// are left out.
func requestsOf(refs []entryRef, procs []observe.Identity, f func([]requestRow) bool) {
	var r Request
	var text Words
	rows := make([]requestRow, 0, min(rowLot, len(refs)))
	for _, ref := range refs {
		if decodeRequest(ref.entry, &r, procs[ref.base:]) {
			rows = append(rows, requestRow{})
			rows[len(rows)-1].set(&r, &text)
		}
		if len(rows) == rowLot {
			if !f(rows) {
				return
			}
			rows = rows[:0]
		}
	}
	if len(rows) > 0 {
		f(rows)
	}
}

// secondsOf decodes rows of endpoints' sums one by one, into memory that is used
// again. Malformed ones are left out.
func secondsOf(refs []entryRef, hists histograms, f func(*secondRow) bool) {
	var row secondRow
	for _, ref := range refs {
		if decodeSecond(ref.entry, &row, hists) && !f(&row) {
			return
		}
	}
}
