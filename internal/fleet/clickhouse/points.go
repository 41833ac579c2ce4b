package clickhouse

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// Points implements fleet.Archive. Rows of the same endpoint and time, of several
// processes or network namespaces, are one point.
func (db *DB) Points(ctx context.Context, q fleet.Question, step time.Duration, f func(*fleet.Point) bool) error {
	table, seconds, err := stepTable(step)
	if err != nil {
		return err
	}
	histories, err := db.histories(ctx, &q)
	if err != nil {
		return fmt.Errorf("clickhouse: points: %w", err)
	}
	if seconds > 1 {
		histories = nil // sums lie in the order of services
	}
	conditions := db.conditions(&q, "port", histories)
	all := spanOf(&q)
	all.from = all.from / seconds * seconds
	all, rows, err := db.edges(ctx, table, all, conditions)
	if err != nil {
		return fmt.Errorf("clickhouse: points: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	length := pieceLength(all, seconds, rows)
	var next *askedPiece
	defer func() {
		cancel() // what was asked for and is not wanted any more
		if next != nil {
			<-next.done
		}
	}()
	for from := all.from; from < all.to; {
		to := min((from/length+1)*length, all.to)
		now := next
		if now == nil {
			now = db.ask(ctx, table, seconds, span{from, to}, conditions)
		}
		// While one piece is looked at here the servers make the next.
		if next = nil; to < all.to {
			next = db.ask(ctx, table, seconds, span{to, min((to/length+1)*length, all.to)}, conditions)
		}
		more, err := now.give(f)
		if err != nil {
			return fmt.Errorf("clickhouse: points: %w", err)
		}
		if !more {
			return nil
		}
		from = to
	}
	return nil
}

// pointNumbers are the columns that Points adds up, as Int64, and where they go.
var pointNumbers = func() (list []struct {
	column string
	add    func(p *fleet.Point, v int64)
}) {
	number := func(column string, add func(p *fleet.Point, v int64)) {
		list = append(list, struct {
			column string
			add    func(p *fleet.Point, v int64)
		}{column, add})
	}
	number("requests", func(p *fleet.Point, v int64) { p.Requests += uint64(v) })
	number("errors", func(p *fleet.Point, v int64) { p.Errors += uint64(v) })
	number("unanswered", func(p *fleet.Point, v int64) { p.Errors += uint64(v) })
	number("total_us", func(p *fleet.Point, v int64) { p.TotalUS += v })
	for part := range observe.NumParts {
		number(schema.LedgerColumn(part), func(p *fleet.Point, v int64) { p.PartsUS[part] += v })
	}
	for part := range observe.NumServerParts {
		number(schema.SplitColumn(part), func(p *fleet.Point, v int64) { p.SplitUS[part] += v })
	}
	number("segments", func(p *fleet.Point, v int64) { p.Segments += uint64(v) })
	number("retrans", func(p *fleet.Point, v int64) { p.Retrans += uint64(v) })
	number("syn_retrans", func(p *fleet.Point, v int64) { p.SynAgain += uint64(v) })
	return list
}()

func same(c *proto.ColStr, i int, s string) bool { return string(c.RowBytes(i)) == s }

// keep is the text of a row, which is often that of the row before.
func keep(before string, c *proto.ColStr, i int) string {
	if same(c, i, before) {
		return before
	}
	return c.Row(i)
}

// addBuckets adds the buckets of a row.
func addBuckets(h *observe.Histogram, buckets *proto.ColArr[uint16], counts *proto.ColArr[uint64], row int) {
	from, to := arrayRow(buckets.Offsets, row)
	k, _ := buckets.Data.(*proto.ColUInt16)
	n, _ := counts.Data.(*proto.ColUInt64)
	for i := from; i < to && i < len(*k) && i < len(*n); i++ {
		h.AddNumbered(int((*k)[i]), (*n)[i])
	}
}

// arrayRow is where the values of a row are.
func arrayRow(offsets proto.ColUInt64, row int) (from, to int) {
	if row > 0 {
		from = int(offsets[row-1])
	}
	return from, int(offsets[row])
}
