package clickhouse

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/store"
)

// Requests implements fleet.Archive. At the calling end the question's port is the
// one that is called.
func (db *DB) Requests(ctx context.Context, q fleet.Question, f func(host string, r *store.Request) bool) error {
	histories, err := db.histories(ctx, &q)
	if err != nil {
		return fmt.Errorf("clickhouse: requests: %w", err)
	}
	conditions := db.conditions(&q, "if(side = 'called', peer_port, port)", histories)
	if !q.From.IsZero() {
		conditions += fmt.Sprintf(" AND start_us >= %d", q.From.UnixMicro())
	}
	if !q.To.IsZero() {
		conditions += fmt.Sprintf(" AND start_us < %d", q.To.UnixMicro())
	}
	if q.Trace != "" {
		conditions += " AND startsWith(trace_id, " + quote(string(q.Trace)) + ")"
	}
	all, _, err := db.edges(ctx, "requests", spanOf(&q), conditions)
	if err != nil {
		return fmt.Errorf("clickhouse: requests: %w", err)
	}
	left := q.Most // of those that are asked for
	// The server puts a minute at a time in order: what it needs for that is bounded.
	for from := all.from; from < all.to; {
		to := min((from/60+1)*60, all.to)
		more, err := db.someRequests(ctx, span{from, to}, conditions, left, func(host string, r *store.Request) bool {
			left--
			return f(host, r) && (q.Most == 0 || left > 0)
		})
		if err != nil {
			return fmt.Errorf("clickhouse: requests: %w", err)
		}
		if !more {
			return nil
		}
		if from = to; from < all.to {
			// Minutes without any are passed over at once.
			next, _, err := db.edges(ctx, "requests", span{from, all.to}, conditions)
			if err != nil {
				return fmt.Errorf("clickhouse: requests: %w", err)
			}
			if next.to == 0 {
				return nil
			}
			from = next.from
		}
	}
	return nil
}

// requestReader takes requests out of an answer.
type requestReader struct {
	host    proto.ColStr
	texts   []*proto.ColStr   // by schema.Requests; nil where it is a number
	numbers []*proto.ColInt64 // by schema.Requests; nil where it is a text
	results proto.Results
	list    []string
	addrs   map[string]netip.Addr
}

func newRequestReader() *requestReader {
	r := &requestReader{addrs: map[string]netip.Addr{}}
	r.ask("host", "CAST(%s AS String)", &r.host)
	for i := range schema.Requests {
		f := &schema.Requests[i]
		column := f.Name
		if f.Kind == schema.Moment {
			column += "_us"
		}
		var text *proto.ColStr
		var n *proto.ColInt64
		if typeOf(f) == "String" {
			text = new(proto.ColStr)
			r.ask(column, "CAST(%s AS String)", text)
		} else {
			n = new(proto.ColInt64)
			r.ask(column, "toInt64(%s)", n)
		}
		r.texts, r.numbers = append(r.texts, text), append(r.numbers, n)
	}
	return r
}

// ask adds a column to what is asked for. Its name in the answer is another one: an
// old server would take the one for the other.
func (in *requestReader) ask(column, as string, into proto.ColResult) {
	in.results = append(in.results, proto.ResultColumn{Data: into})
	in.list = append(in.list, fmt.Sprintf(as, name(column))+" AS "+name(column+"_"))
}

func (db *DB) someRequests(ctx context.Context, s span, conditions string, most int, f func(host string, r *store.Request) bool) (more bool, err error) {
	more = true
	in := newRequestReader()
	statement := "SELECT " + strings.Join(in.list, ", ") + " FROM requests WHERE " + s.where() + conditions + " ORDER BY start_us_, host_, position"
	if most > 0 {
		statement += fmt.Sprintf(" LIMIT %d", most)
	}
	given := false
	err = db.anyServer(ctx, func(server string, d Dialect) error {
		return db.c.query(ctx, server, d, maxPassed, statement, in.results, func(n int) bool {
			given = true
			var r store.Request
			for i := range n {
				in.read(i, &r)
				if more = f(in.host.Row(i), &r); !more {
					return false
				}
			}
			return true
		})
	})
	if err != nil && given {
		return false, fmt.Errorf("in the midst of the answer: %w", err)
	}
	return more, err
}

func (in *requestReader) address(c *proto.ColStr, i int) netip.Addr {
	text := c.RowBytes(i)
	a, ok := in.addrs[string(text)]
	if !ok && len(text) > 0 {
		if len(in.addrs) >= maxWords {
			clear(in.addrs)
		}
		a, _ = netip.ParseAddr(string(text))
		in.addrs[string(text)] = a
	}
	return a
}

// read makes the request of a row.
func (in *requestReader) read(i int, r *store.Request) {
	*r = store.Request{}
	for column := range schema.Requests {
		switch f := &schema.Requests[column]; f.Kind {
		case schema.Text:
			f.SetText(r, in.texts[column].Row(i))
		case schema.Addr:
			f.SetAddr(r, in.address(in.texts[column], i))
		case schema.Flags:
			r.Flags = schema.FlagsOf(in.texts[column].Row(i))
		default:
			f.SetValue(r, (*in.numbers[column])[i])
		}
	}
}
