package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
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
	if all, err = db.edges(ctx, table, all, conditions); err != nil {
		return fmt.Errorf("clickhouse: points: %w", err)
	}
	// The server puts a piece at a time in order: what it needs for that is bounded.
	piece := 60 * seconds
	for from := all.from; from < all.to; {
		to := min((from/piece+1)*piece, all.to)
		more, err := db.piece(ctx, table, seconds, span{from, to}, conditions, f)
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
		number(partColumn(part), func(p *fleet.Point, v int64) { p.PartsUS[part] += v })
	}
	for part := range observe.NumServerParts {
		number(splitColumn(part), func(p *fleet.Point, v int64) { p.SplitUS[part] += v })
	}
	number("segments", func(p *fleet.Point, v int64) { p.Segments += uint64(v) })
	number("retrans", func(p *fleet.Point, v int64) { p.Retrans += uint64(v) })
	number("syn_retrans", func(p *fleet.Point, v int64) { p.SynAgain += uint64(v) })
	return list
}()

// piece gives the points of a stretch of time.
func (db *DB) piece(ctx context.Context, table string, seconds int64, s span, conditions string, f func(*fleet.Point) bool) (more bool, err error) {
	var at proto.ColUInt32
	var side, port proto.ColUInt16
	var rtt, longest proto.ColInt64
	var host, service, addr proto.ColStr
	buckets, counts := new(proto.ColUInt16).Array(), new(proto.ColUInt64).Array()
	results := proto.Results{{Data: &at}, {Data: &host}, {Data: &service}, {Data: &side}, {Data: &addr}, {Data: &port}}
	list := []string{"toUInt32(time) AS at_", "CAST(host AS String) AS host_", "CAST(service AS String) AS service_", "toUInt16(side) AS side_", "CAST(addr AS String) AS addr_", "port"}
	values := make([]proto.ColInt64, len(pointNumbers))
	for i, n := range pointNumbers {
		results = append(results, proto.ResultColumn{Data: &values[i]})
		list = append(list, "toInt64("+name(n.column)+") AS "+name(n.column+"_"))
	}
	minimum, maximum := "min_rtt_us", "total_max_us"
	if seconds > 1 {
		minimum, maximum = "finalizeAggregation(min_rtt_us)", "finalizeAggregation(total_max_us)"
	}
	list = append(list, "toInt64("+minimum+") AS rtt_", "toInt64("+maximum+") AS longest_", "`total_histMap.bucket`", "`total_histMap.n`")
	results = append(results, proto.ResultColumn{Data: &rtt}, proto.ResultColumn{Data: &longest}, proto.ResultColumn{Data: buckets}, proto.ResultColumn{Data: counts})
	statement := "SELECT " + strings.Join(list, ", ") + " FROM " + table + " WHERE " + s.where() + conditions +
		" ORDER BY at_, host_, service_, side_, addr_, port"

	var p fleet.Point
	var total observe.Histogram
	begun, max_ := false, int64(0)
	give := func() bool {
		total.RaiseMax(max_ * 1000)
		p.P50US, p.P99US = micros(total.Quantile(0.5)), micros(total.Quantile(0.99))
		return f(&p)
	}
	more = true
	gave := false // of this piece: it is not asked for again
	err = db.anyServer(ctx, func(server string, d Dialect) error {
		return db.c.query(ctx, server, d, statement, results, func(n int) bool {
			gave = true
			for i := range n {
				if !begun || p.At != int64(at[i]) || p.Port != int(port[i]) || p.Side != observe.Side(side[i]) || !same(&host, i, p.Host) || !same(&service, i, p.Service) || !same(&addr, i, p.Addr) {
					if begun {
						if more = give(); !more {
							return false
						}
					}
					key := fleet.Key{Host: keep(p.Host, &host, i), Service: keep(p.Service, &service, i), Side: observe.Side(side[i]), Addr: keep(p.Addr, &addr, i), Port: int(port[i])}
					p = fleet.Point{Key: key, At: int64(at[i]), Seconds: int(seconds)}
					total.Reset()
					begun, max_ = true, 0
				}
				for k := range pointNumbers {
					if v := values[k][i]; v != 0 {
						pointNumbers[k].add(&p, v)
					}
				}
				if v := rtt[i]; v > 0 && v < 1<<62 && (p.MinRTTUS == 0 || v < p.MinRTTUS) {
					p.MinRTTUS = v
				}
				max_ = max(max_, longest[i])
				addBuckets(&total, buckets, counts, i)
			}
			return true
		})
	})
	if err == nil && more && begun {
		more = give()
	}
	if err != nil && gave {
		return false, fmt.Errorf("in the midst of the answer: %w", err)
	}
	return more, err
}

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
