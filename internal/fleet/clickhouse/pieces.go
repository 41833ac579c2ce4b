package clickhouse

import (
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// A server puts the rows of an answer in order before it gives the first of them. So
// that what it needs for that is bounded, and nobody waits for all of it, points are
// asked for in pieces of the time.
const (
	pieceRows  = 500_000
	pieceSteps = 60 // at most
)

// pieceLength is how long pieces are, in seconds, where a span has so many rows.
func pieceLength(s span, seconds int64, rows uint64) int64 {
	steps := max((s.to-s.from)/seconds, 1)
	each := max(int64(rows)/steps, 1) // rows of a step
	return min(max(pieceRows/each, 1), pieceSteps) * seconds
}

// askedPiece is a piece that was asked for. The goroutine that reads the answer fills the
// columns, and waits while the rows in them are looked at.
type askedPiece struct {
	ctx     context.Context
	seconds int64
	rows    chan int  // that are in the columns
	seen    chan bool // of these; false when no more are wanted
	done    chan struct{}
	err     error // once done is closed

	at                  proto.ColUInt32
	host, service, addr proto.ColStr
	side, port          proto.ColUInt16
	values              []proto.ColInt64 // of pointNumbers
	rtt, longest        proto.ColInt64
	buckets             *proto.ColArr[uint16]
	counts              *proto.ColArr[uint64]
}

// ask asks for a piece; it does not wait for the answer.
func (db *DB) ask(ctx context.Context, table string, seconds int64, s span, conditions string) *askedPiece {
	a := &askedPiece{ctx: ctx, seconds: seconds, rows: make(chan int), seen: make(chan bool), done: make(chan struct{}),
		values: make([]proto.ColInt64, len(pointNumbers)), buckets: new(proto.ColUInt16).Array(), counts: new(proto.ColUInt64).Array()}
	statement, results := a.question(table, s, conditions)
	go func() {
		defer close(a.done)
		gave := false // then it is not asked for again
		a.err = db.anyServer(ctx, func(server string, d Dialect) error {
			return db.c.query(ctx, server, d, maxPassed, statement, results, func(n int) bool {
				gave = true
				return a.handOver(n)
			})
		})
		if a.err == nil {
			a.err = ctx.Err() // the answer may have been left halfway
		}
		if a.err != nil && gave {
			a.err = fmt.Errorf("in the midst of the answer: %w", a.err)
		}
	}()
	return a
}

// question is the statement, and where the columns of its answer go.
func (a *askedPiece) question(table string, s span, conditions string) (string, proto.Results) {
	results := proto.Results{{Data: &a.at}, {Data: &a.host}, {Data: &a.service}, {Data: &a.side}, {Data: &a.addr}, {Data: &a.port}}
	list := []string{"toUInt32(time) AS at_", "CAST(host AS String) AS host_", "CAST(service AS String) AS service_", "toUInt16(side) AS side_", "CAST(addr AS String) AS addr_", "port"}
	for i, n := range pointNumbers {
		results = append(results, proto.ResultColumn{Data: &a.values[i]})
		list = append(list, "toInt64("+name(n.column)+") AS "+name(n.column+"_"))
	}
	minimum, maximum := "min_rtt_us", "total_max_us"
	if a.seconds > 1 {
		minimum, maximum = "finalizeAggregation(min_rtt_us)", "finalizeAggregation(total_max_us)"
	}
	list = append(list, "toInt64("+minimum+") AS rtt_", "toInt64("+maximum+") AS longest_", "`total_histMap.bucket`", "`total_histMap.n`")
	results = append(results, proto.ResultColumn{Data: &a.rtt}, proto.ResultColumn{Data: &a.longest}, proto.ResultColumn{Data: a.buckets}, proto.ResultColumn{Data: a.counts})
	return "SELECT " + strings.Join(list, ", ") + " FROM " + table + " WHERE " + s.where() + conditions +
		" ORDER BY at_, host_, service_, side_, addr_, port", results
}

// handOver has the rows that are in the columns looked at; false when no more are wanted.
func (a *askedPiece) handOver(n int) bool {
	select {
	case a.rows <- n:
		return <-a.seen
	case <-a.ctx.Done():
		return false
	}
}

// give gives the points of the piece to f, until it returns false.
func (a *askedPiece) give(f func(*fleet.Point) bool) (more bool, err error) {
	g := giver{askedPiece: a, f: f}
	for more = true; ; {
		select {
		case n := <-a.rows:
			more = more && g.add(n)
			a.seen <- more
		case <-a.done:
			if a.err == nil && more && g.begun {
				more = g.give()
			}
			return more, a.err
		}
	}
}

// giver makes points of rows: those of the same endpoint and time are one.
type giver struct {
	*askedPiece
	f       func(*fleet.Point) bool
	p       fleet.Point
	begun   bool
	total   observe.Histogram
	longest int64 // µs
}

// give gives the point that is complete.
func (g *giver) give() bool {
	g.total.RaiseMax(g.longest * 1000)
	g.p.P50US, g.p.P99US = schema.RoundMicros(g.total.Quantile(0.5)), schema.RoundMicros(g.total.Quantile(0.99))
	return g.f(&g.p)
}

// add takes up the rows that are in the columns.
func (g *giver) add(n int) bool {
	a, p := g.askedPiece, &g.p
	for i := range n {
		if !g.begun || p.At != int64(a.at[i]) || p.Port != int(a.port[i]) || p.Side != observe.Side(a.side[i]) || !same(&a.host, i, p.Host) || !same(&a.service, i, p.Service) || !same(&a.addr, i, p.Addr) {
			if g.begun && !g.give() {
				return false
			}
			key := fleet.Key{Host: keep(p.Host, &a.host, i), Service: keep(p.Service, &a.service, i), Side: observe.Side(a.side[i]), Addr: keep(p.Addr, &a.addr, i), Port: int(a.port[i])}
			*p = fleet.Point{Key: key, At: int64(a.at[i]), Seconds: int(a.seconds)}
			g.total.Reset()
			g.begun, g.longest = true, 0
		}
		for k := range pointNumbers {
			if v := a.values[k][i]; v != 0 {
				pointNumbers[k].add(p, v)
			}
		}
		if v := a.rtt[i]; v > 0 && v < 1<<62 && (p.MinRTTUS == 0 || v < p.MinRTTUS) {
			p.MinRTTUS = v
		}
		g.longest = max(g.longest, a.longest[i])
		addBuckets(&g.total, a.buckets, a.counts, i)
	}
	return true
}
