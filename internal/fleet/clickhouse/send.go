package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/gateway"
)

// sender is what a stream's goroutine needs.
type sender struct {
	requests *requestRows
	seconds  *secondRows
	findings *findingRows
	unclear  bool // the last Send ended in an error after it may have reached a server
}

// queryPrefix is what the queries begin with that insert batches of a host's stream.
func queryPrefix(h *fleet.Host, s fleet.Stream) string {
	return "slowray/" + h.ID + "/" + string(s) + "/"
}

// Send implements fleet.Target. A batch is one block of one partition: the server
// makes one part of it, which is there whole or not at all.
func (db *DB) Send(ctx context.Context, b *fleet.Batch) error {
	s := db.streams[b.Stream]
	if s == nil {
		return fleet.Permanent(fmt.Errorf("clickhouse: no stream %q", string(b.Stream)))
	}
	rows, err := db.collect(s, b)
	if err != nil {
		return fleet.Permanent(fmt.Errorf("clickhouse: %w", err))
	}
	if rows.rows == 0 {
		return nil
	}
	id := fmt.Sprintf("%s%d", queryPrefix(b.Host, b.Stream), b.First)
	err = db.eachReplica(ctx, db.shardOf(b.Host), func(server string, d Dialect) error { return db.c.insert(ctx, server, d, id, rows) })
	if err != nil {
		s.unclear = s.unclear || !notBegun(err) && codeOf(err) != codeReadOnly
		return fmt.Errorf("clickhouse: %w", err)
	}
	return nil
}

// collect makes the rows of a batch.
func (db *DB) collect(s *sender, b *fleet.Batch) (*block, error) {
	switch b.Stream {
	case fleet.Requests:
		if s.requests == nil {
			s.requests = newRequestRows(db.cfg.local("requests"))
		}
		s.requests.reset()
		for p, r := range b.Requests {
			s.requests.add(b, p, r)
		}
		return s.requests.block, nil
	case fleet.Seconds:
		if s.seconds == nil {
			s.seconds = newSecondRows(db.cfg.local("seconds"))
		}
		s.seconds.reset()
		for p, sec := range b.Seconds {
			s.seconds.add(b, p, sec)
		}
		return s.seconds.block, nil
	}
	if s.findings == nil {
		s.findings = newFindingRows(db.cfg.local("findings"))
	}
	s.findings.reset()
	for p, f := range b.Findings {
		if err := s.findings.add(b, p, f); err != nil {
			return nil, err
		}
	}
	return s.findings.block, nil
}

// settle is how long a server that was silent has to begin what it may still hold of
// an insert whose connection is gone.
var settle = time.Second

// Mark implements fleet.Target.
func (db *DB) Mark(ctx context.Context, h *fleet.Host, stream fleet.Stream) (fleet.Position, error) {
	s := db.streams[stream]
	if s == nil {
		return 0, fleet.Permanent(fmt.Errorf("clickhouse: no stream %q", string(stream)))
	}
	if s.unclear {
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	last, err := db.mark(ctx, h, stream)
	if err != nil {
		return 0, fmt.Errorf("clickhouse: %w", err)
	}
	s.unclear = false
	return last, nil
}

// mark asks all servers of the host's shard. One that does not answer may hold what
// the others do not have yet: then one that has all that was ever begun must tell.
func (db *DB) mark(ctx context.Context, h *fleet.Host, stream fleet.Stream) (fleet.Position, error) {
	var last uint64
	var failed error
	answered, whole := 0, false
	servers := db.cfg.Shards[db.shardOf(h)]
	for _, server := range servers {
		p, all, err := db.markOf(ctx, server, h, stream, len(servers) > 1)
		if err != nil {
			failed = errors.Join(failed, err)
			if !fleet.Temporary(err) {
				return 0, err
			}
			continue
		}
		answered++
		whole = whole || all
		last = max(last, p)
	}
	if answered < len(servers) && !whole {
		if answered > 0 {
			return 0, fmt.Errorf("the replicas that answer do not have all rows of those that do not: %w", failed)
		}
		return 0, failed
	}
	return fleet.Position(last), nil
}

// markOf is the last position on one server, and whether it has all that its
// replicas have.
func (db *DB) markOf(ctx context.Context, server string, h *fleet.Host, stream fleet.Stream, replicated bool) (last uint64, whole bool, err error) {
	d, err := db.speaks(ctx, server)
	if err != nil {
		return 0, false, err
	}
	if err := db.waitForInserts(ctx, server, d, h, stream); err != nil {
		return 0, false, err
	}
	table := db.cfg.local(string(stream))
	whole = true
	if replicated {
		behind, err := db.c.number(ctx, server, d, "SELECT toUInt64(inserts_in_queue + if(log_max_index > log_pointer, log_max_index - log_pointer, 0)) AS n FROM system.replicas WHERE database = "+
			quote(db.cfg.Database)+" AND table = "+quote(table))
		if err != nil {
			return 0, false, err
		}
		whole = behind == 0
	}
	last, err = db.c.number(ctx, server, d, "SELECT max(position) AS n FROM "+table+" WHERE history = "+quote(h.ID))
	if err == nil && stream == fleet.Seconds && last > 0 {
		err = db.mend(ctx, server, d, h, last)
	}
	return last, whole, err
}

// waitForInserts waits until a batch of a host's stream that was sent before can not
// come into the table any more on a server: none is with the gateway, no insert of the
// host runs, and no insert of a gateway that ran when this was called, for a batch of
// this host may be in it.
func (db *DB) waitForInserts(ctx context.Context, server string, d Dialect, h *fleet.Host, stream fleet.Stream) error {
	own, joint := queryPrefix(h, stream), gateway.QueryPrefix(string(stream))
	if db.cfg.Gateway != "" {
		if err := db.c.post(ctx, server, gateway.SettlePath, url.Values{"stream": {own}}, nil, nil); err != nil {
			return err
		}
	}
	begins := func(prefix string) string {
		return fmt.Sprintf("substring(query_id, 1, %d) = %s", len(prefix), quote(prefix))
	}
	statement := "SELECT query_id FROM system.processes WHERE " + begins(own) + " OR " + begins(joint)
	var ran map[string]bool // inserts of gateways when the first answer came
	for {
		var id proto.ColStr
		runs, now := false, map[string]bool{}
		err := db.c.query(ctx, server, d, statement, proto.Results{{Data: &id}}, func(n int) bool {
			for i := range n {
				name := id.Row(i)
				switch {
				case strings.HasPrefix(name, own):
					runs = true
				case ran == nil || ran[name]:
					runs, now[name] = true, true
				}
			}
			return true
		})
		if err != nil || !runs {
			return err
		}
		ran = now
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mend adds the last batch of seconds of a host to the sums where its server was
// killed after it had the rows and before it had added them up. Each sum is either
// of all of a batch or of none of it, and those before the last one are right: an
// insert that succeeded has made them.
func (db *DB) mend(ctx context.Context, server string, d Dialect, h *fleet.Host, last uint64) error {
	host := "history = " + quote(h.ID)
	seconds := db.cfg.local("seconds")
	var batch, rows proto.ColUInt64
	var from, to proto.ColUInt32
	if err := db.c.query(ctx, server, d, fmt.Sprintf(
		"SELECT max(batch) AS b, count() AS n, toUInt32(min(time)) AS t0, toUInt32(max(time)) AS t1 FROM %[1]s WHERE %[2]s AND batch IN (SELECT batch FROM %[1]s WHERE %[2]s AND position = %[3]d)",
		seconds, host, last), proto.Results{{Data: &batch}, {Data: &rows}, {Data: &from}, {Data: &to}}, oneRow); err != nil {
		return err
	}
	for i := range rollups {
		r := &rollups[i]
		// All rows of the batch's slots, and those that were added up.
		first, end := from[0]/uint32(r.seconds)*uint32(r.seconds), (to[0]/uint32(r.seconds)+1)*uint32(r.seconds)
		between := fmt.Sprintf("%s AND time >= toDateTime(%d) AND time < toDateTime(%d)", host, first, end)
		have, err := db.c.number(ctx, server, d, "SELECT count() AS n FROM "+seconds+" WHERE "+between)
		if err != nil {
			return err
		}
		summed, err := db.c.number(ctx, server, d, "SELECT sum(records) AS n FROM "+db.cfg.local(r.table)+" WHERE "+between)
		if err != nil {
			return err
		}
		if have != summed+rows[0] {
			continue
		}
		where := fmt.Sprintf(" WHERE %s AND batch = %d", host, batch[0])
		if err := db.c.exec(ctx, server, db.cfg.Database, "INSERT INTO "+db.cfg.local(r.table)+" ("+names(r.inserted()...)+") "+r.sums(seconds, where)); err != nil {
			return err
		}
	}
	return nil
}

// oneRow is for answers of one row.
func oneRow(int) bool { return false }
