package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
)

// span is a stretch of time, in seconds since 1970; to is not in it.
type span struct{ from, to int64 }

// maxTime is the end of DateTime.
const maxTime = 1<<32 - 1

// spanOf is the time of a question, as far as DateTime goes. A part of a second
// counts as all of it.
func spanOf(q *fleet.Question) span {
	s := span{0, maxTime}
	if !q.From.IsZero() {
		s.from = min(max(q.From.Unix(), 0), maxTime)
	}
	if !q.To.IsZero() {
		to := q.To.Unix()
		if q.To.Nanosecond() > 0 {
			to++
		}
		s.to = min(max(to, 0), maxTime)
	}
	return s
}

// days is the condition that leaves partitions out. A batch is filed under the day
// of its first record, and has others of up to some days later.
func (s span) where() string {
	return fmt.Sprintf("time >= toDateTime(%d) AND time < toDateTime(%d) AND day >= toDate(%d) AND day <= toDate(%d)",
		s.from, s.to, max(s.from/86400-1, 0), min(s.to/86400+1, 65535))
}

// conditions are those of a question but for its time. Port is the column that the
// port of the endpoint is in.
func (db *DB) conditions(q *fleet.Question, port string, histories []string) string {
	var b strings.Builder
	if q.Host != "" {
		b.WriteString(" AND host = " + quote(q.Host))
	}
	if len(histories) > 0 {
		quoted := make([]string, len(histories))
		for i, h := range histories {
			quoted[i] = quote(h)
		}
		b.WriteString(" AND history IN (" + strings.Join(quoted, ", ") + ")")
	}
	if q.Service != "" {
		b.WriteString(" AND service = " + quote(q.Service))
	}
	if q.Side != 0 {
		b.WriteString(" AND side = " + quote(q.Side.String()))
	}
	if q.Port != 0 {
		fmt.Fprintf(&b, " AND %s = %d", port, q.Port)
	}
	return b.String()
}

// maxHistories is how many histories of one name are looked at: a host begins one anew
// where its directory was lost.
const maxHistories = 1000

// histories are the IDs that a host of a name ever said Hello with: rows lie in their
// order. It is empty when all hosts are asked for.
func (db *DB) histories(ctx context.Context, q *fleet.Question) ([]string, error) {
	if q.Host == "" {
		return nil, nil
	}
	var id proto.ColStr
	var all []string
	err := db.anyServer(ctx, func(server string, d Dialect) error {
		all = nil
		return db.c.query(ctx, server, d, maxKept, "SELECT DISTINCT id FROM hosts WHERE host = "+quote(q.Host)+fmt.Sprintf(" LIMIT %d", maxHistories), proto.Results{{Data: &id}}, func(n int) bool {
			for i := range min(n, maxHistories-len(all)) {
				all = append(all, id.Row(i))
			}
			return len(all) < maxHistories
		})
	})
	return all, err
}

// stepTable is where points of a step are.
func stepTable(step time.Duration) (table string, seconds int64, err error) {
	switch step {
	case time.Second:
		return "seconds", 1, nil
	case 10 * time.Second:
		return "seconds10", 10, nil
	case 5 * time.Minute:
		return "minutes5", 300, nil
	}
	return "", 0, fmt.Errorf("clickhouse: points of %s: there are those of 1s, 10s and 5m", step)
}

// edges is the time that rows of a table lie in, within a span, and how many they are.
func (db *DB) edges(ctx context.Context, table string, s span, conditions string) (span, uint64, error) {
	var of []uint64
	err := db.anyServer(ctx, func(server string, _ Dialect) (err error) {
		of, err = db.c.numbers(ctx, server, "SELECT toUInt32(min(time)) AS t0, toUInt32(max(time)) AS t1, count() AS n FROM "+table+" WHERE "+s.where()+conditions, 3)
		return err
	})
	if err != nil || of[2] == 0 {
		return span{}, 0, err
	}
	return span{int64(of[0]), int64(of[1]) + 1}, of[2], nil
}
