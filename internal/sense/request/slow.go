package request

import (
	"math/bits"

	"github.com/slowray/slowray/internal/observe"
)

// The slowest hundredth is not known before all requests were seen, and keeping
// them all, or a sample, costs memory or the truth. So ledgers are summed up by
// the request's total instead: in rows that are an eighth of a power of two
// wide. The rows above the hundredth are summed exactly; the row it cuts, of
// requests within 12.5 % of each other, counts in proportion. Rows of two
// tables add up, so the result depends on no order.
const (
	slowSubBits = 3                                  // eight rows for each power of two
	slowLinear  = 14                                 // requests under 16 µs share one row
	slowRows    = (48-slowLinear+1)<<slowSubBits + 1 // up to 2⁴⁸ ns, three days
	minSlow     = 10                                 // the slowest hundredth is at least so many
)

type ledgerRow struct {
	n     uint64
	parts observe.Ledger
	split splitSum
}

// splitSum sums up requests whose Server time was split.
type splitSum struct {
	n      uint64
	server int64
	parts  observe.ServerSplit
}

func (s *splitSum) add(r *observe.Request, n uint64) {
	s.n += n
	s.server += r.Ledger[observe.Server] * int64(n)
	for p, ns := range r.Split {
		s.parts[p] += ns * int64(n)
	}
}

// merge adds part of the whole of o.
func (s *splitSum) merge(o *splitSum, part, whole uint64) {
	s.n += uint64(proportion(int64(o.n), part, whole))
	s.server += proportion(o.server, part, whole)
	for p, ns := range o.parts {
		s.parts[p] += proportion(ns, part, whole)
	}
}

// ledgerRows sums ledgers up by total. The zero value is ready.
type ledgerRows struct {
	rows []ledgerRow // of row base and the following ones
	base int
}

func rowOf(total int64) int {
	if total < 1<<slowLinear {
		return 0
	}
	e := bits.Len64(uint64(total)) - 1
	sub := int(total>>(e-slowSubBits)) & (1<<slowSubBits - 1)
	return min((e-slowLinear)<<slowSubBits+sub+1, slowRows-1)
}

// row is where a row is summed up, with room made for it.
func (s *ledgerRows) row(k int) *ledgerRow {
	i := k - s.base
	if uint(i) >= uint(len(s.rows)) {
		s.grow(k)
		i = k - s.base
	}
	return &s.rows[i]
}

// grow makes room in steps of a power of two.
func (s *ledgerRows) grow(k int) {
	const step = 1 << slowSubBits
	from, to := k/step*step, (k/step+1)*step
	if len(s.rows) > 0 {
		from, to = min(from, s.base), max(to, s.base+len(s.rows))
	}
	rows := make([]ledgerRow, to-from)
	if len(s.rows) > 0 {
		copy(rows[s.base-from:], s.rows)
	}
	s.rows, s.base = rows, from
}

// add counts a request that stands for n.
func (s *ledgerRows) add(total int64, r *observe.Request, n uint64) {
	row := s.row(rowOf(total))
	row.n += n
	if r.Followed {
		row.split.add(r, n)
	}
	l := &r.Ledger
	if n == 1 {
		for p := range l {
			row.parts[p] += l[p]
		}
		return
	}
	for p := range l {
		row.parts[p] += l[p] * int64(n)
	}
}

func (s *ledgerRows) merge(other *ledgerRows) {
	for i := range other.rows {
		o := &other.rows[i]
		if o.n == 0 {
			continue
		}
		row := s.row(other.base + i)
		row.n += o.n
		for p := range o.parts {
			row.parts[p] += o.parts[p]
		}
		row.split.merge(&o.split, 1, 1)
	}
}

func (s *ledgerRows) reset() { clear(s.rows) }

// sum is all there is: how many, and their parts.
func (s *ledgerRows) sum() (n uint64, parts observe.Ledger, split splitSum) {
	for i := range s.rows {
		n += s.rows[i].n
		for p, ns := range s.rows[i].parts {
			parts[p] += ns
		}
		split.merge(&s.rows[i].split, 1, 1)
	}
	return n, parts, split
}

// slowest sums the parts of the slowest hundredth, of at least minSlow; of all
// if there are fewer.
func (s *ledgerRows) slowest() (count uint64, parts observe.Ledger, split splitSum) {
	var n uint64
	for i := range s.rows {
		n += s.rows[i].n
	}
	count = min(max(n/100, minSlow), n)
	for i, left := len(s.rows)-1, count; left > 0; i-- {
		row := &s.rows[i]
		if row.n <= left {
			for p, ns := range row.parts {
				parts[p] += ns
			}
			split.merge(&row.split, 1, 1)
			left -= row.n
			continue
		}
		for p, ns := range row.parts {
			parts[p] += proportion(ns, left, row.n)
		}
		split.merge(&row.split, left, row.n)
		left = 0
	}
	return count, parts, split
}

// proportion is ns × part / of, rounded down, for part ≤ of.
func proportion(ns int64, part, of uint64) int64 {
	if ns < 0 {
		return -proportion(-ns, part, of)
	}
	hi, lo := bits.Mul64(uint64(ns), part)
	q, _ := bits.Div64(hi, lo, of)
	return int64(q)
}
