package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/gateway"
)

// sender is what a stream's goroutine needs.
type sender struct {
	requests *requestRows
	seconds  *secondRows
	findings *findingRows
	unclear  bool            // the last Send ended in an error after it may have reached a server
	viewed   map[string]bool // servers that have all views of the tables
	// unsettled: at the start it is not known what was sent before.
	unsettled unsettled
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
		s.unsettled.note(err)
		s.unclear = s.unclear || !notBegun(err) && !errors.Is(err, errSilent) && codeOf(err) != codeReadOnly
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
	if err := s.unsettled.settle(ctx, db.c, db.cfg.Shards[db.shardOf(h)][0], queryPrefix(h, stream)); err != nil {
		return 0, fmt.Errorf("clickhouse: gateway: %w", err)
	}
	last, err := db.mark(ctx, h, stream)
	if err != nil {
		return 0, fmt.Errorf("clickhouse: %w", err)
	}
	s.unclear = false
	return last, nil
}

// mark asks all servers of the host's shard. One that does not answer may hold what
// the others do not have yet: then one that has all that was ever begun must tell. One
// that takes connections and says nothing may go on with what it holds as long as its
// session with ZooKeeper lasts.
func (db *DB) mark(ctx context.Context, h *fleet.Host, stream fleet.Stream) (fleet.Position, error) {
	var last uint64
	var has string // the server that has it
	var failed error
	servers := db.cfg.Shards[db.shardOf(h)]
	silent := map[string]bool{}
	for _, server := range servers {
		if db.mayPassOver(servers) && db.isSilent(ctx, server) {
			silent[server] = true
			failed = errors.Join(failed, fmt.Errorf("%s: %w", server, errSilent))
		}
	}
	answered, active, whole := 0, 0, false
	for _, server := range servers {
		if silent[server] {
			continue
		}
		m, err := db.markOf(ctx, server, h, stream, len(servers) > 1)
		if err != nil {
			failed = errors.Join(failed, err)
			if !fleet.Temporary(err) {
				return 0, err
			}
			continue
		}
		answered++
		whole = whole || m.whole
		active = max(active, m.active)
		if m.last > last {
			last, has = m.last, server
		}
	}
	switch {
	case answered == len(servers):
	case answered == 0:
		return 0, failed
	case !whole:
		return 0, fmt.Errorf("the replicas that answer do not have all rows of those that do not: %w", failed)
	case len(silent) > 0 && active > answered:
		return 0, fmt.Errorf("a replica that does not answer has a session with ZooKeeper yet: %w", failed)
	}
	if stream == fleet.Seconds && last > 0 {
		// On one server only: another one may not know yet of sums that were made there.
		if err := db.repair(ctx, has, h, last, len(servers) > 1, len(silent) > 0); err != nil {
			return 0, err
		}
	}
	return fleet.Position(last), nil
}

// marked is what one server tells of a stream of a host.
type marked struct {
	last   uint64
	whole  bool // it has all that its replicas have
	active int  // replicas that have a session with ZooKeeper
}

// markOf asks one server.
func (db *DB) markOf(ctx context.Context, server string, h *fleet.Host, stream fleet.Stream, replicated bool) (m marked, err error) {
	d, err := db.speaks(ctx, server)
	if err != nil {
		return m, err
	}
	if err := db.waitForInserts(ctx, server, d, h, stream); err != nil {
		return m, err
	}
	table := db.cfg.local(string(stream))
	m.whole = true
	if replicated {
		if m.whole, m.active, err = db.replica(ctx, server, table); err != nil {
			return m, err
		}
	}
	if stream == fleet.Seconds {
		if err := db.views(ctx, server, d, db.streams[stream]); err != nil {
			return m, err
		}
	}
	m.last, err = db.c.number(ctx, server, d, "SELECT max(position) AS n FROM "+table+" WHERE history = "+quote(h.ID))
	return m, err
}

// replica says whether a server has all that its replicas have of a table, as far as
// ZooKeeper knows, and how many of them have a session there.
func (db *DB) replica(ctx context.Context, server, table string) (whole bool, active int, err error) {
	of, err := db.c.numbers(ctx, server, "SELECT toUInt64(inserts_in_queue + if(log_max_index > log_pointer, log_max_index - log_pointer, 0)) AS n, toUInt64(active_replicas) AS a FROM system.replicas WHERE database = "+
		quote(db.cfg.Database)+" AND table = "+quote(table), 2)
	if err != nil {
		return false, 0, err
	}
	return of[0] == 0, int(of[1]), nil
}

// waitForInserts waits until a batch of a host's stream that was sent before can not
// come into the table any more on a server, where none is with a gateway: no insert of
// the host runs, and no insert of a gateway that ran when this was called, for a batch of
// this host may be in it.
func (db *DB) waitForInserts(ctx context.Context, server string, d Dialect, h *fleet.Host, stream fleet.Stream) error {
	own, joint := queryPrefix(h, stream), gateway.QueryPrefix(string(stream))
	begins := func(prefix string) string {
		return fmt.Sprintf("substring(query_id, 1, %d) = %s", len(prefix), quote(prefix))
	}
	statement := "SELECT query_id FROM system.processes WHERE " + begins(own) + " OR " + begins(joint)
	var ran map[string]bool // inserts of gateways when the first answer came
	for {
		rows, err := db.c.small(ctx, server, db.cfg.Database, statement, 1)
		runs, now := false, map[string]bool{}
		for _, row := range rows {
			switch name := row[0]; {
			case strings.HasPrefix(name, own):
				runs = true
			case ran == nil || ran[name]:
				runs, now[name] = true, true
			}
		}
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

// fix adds the last batch of seconds of a host to the sums where its server was
// killed after it had the rows and before it had added them up. Each sum is either
// of all of a batch or of none of it, and those before the last one are right: an
// insert that succeeded has made them. Where a replica hangs, which may be about to make
// them, or sums of others are not here yet, it is an error instead.
func (db *DB) repair(ctx context.Context, server string, h *fleet.Host, last uint64, replicated, hangs bool) error {
	host := "history = " + quote(h.ID)
	seconds := db.cfg.local("seconds")
	of, err := db.c.numbers(ctx, server, fmt.Sprintf(
		"SELECT max(batch) AS b, count() AS n, toUInt32(min(time)) AS t0, toUInt32(max(time)) AS t1 FROM %[1]s WHERE %[2]s AND batch IN (SELECT batch FROM %[1]s WHERE %[2]s AND position = %[3]d)",
		seconds, host, last), 4)
	if err != nil {
		return err
	}
	batch, rows, from, to := of[0], of[1], of[2], of[3]
	if rows == 0 {
		return nil // dropped meanwhile
	}
	for i := range rollups {
		r := &rollups[i]
		// All rows of the batch's slots, and those that were added up.
		first, end := from/uint64(r.seconds)*uint64(r.seconds), (to/uint64(r.seconds)+1)*uint64(r.seconds)
		between := fmt.Sprintf("%s AND time >= toDateTime(%d) AND time < toDateTime(%d)", host, first, end)
		have, err := db.c.number(ctx, server, Auto, "SELECT count() AS n FROM "+seconds+" WHERE "+between)
		if err != nil {
			return err
		}
		summed, err := db.c.number(ctx, server, Auto, "SELECT sum(records) AS n FROM "+db.cfg.local(r.table)+" WHERE "+between)
		if err != nil {
			return err
		}
		if have != summed+rows {
			continue
		}
		if hangs {
			return fmt.Errorf("%s: the last rows are in no sums yet, and a replica that does not answer may be about to make them", server)
		}
		if replicated {
			whole, _, err := db.replica(ctx, server, db.cfg.local(r.table))
			if err != nil {
				return err
			}
			now, err := db.c.number(ctx, server, Auto, "SELECT sum(records) AS n FROM "+db.cfg.local(r.table)+" WHERE "+between)
			if err != nil {
				return err
			}
			if !whole || now != summed {
				return fmt.Errorf("%s: sums of its replicas are not there yet", server)
			}
		}
		where := fmt.Sprintf(" WHERE %s AND batch = %d", host, batch)
		// By its name it is waited for, as a batch is.
		id := queryPrefix(h, fleet.Seconds) + "sums/" + r.table
		if err := db.c.execAs(ctx, server, db.cfg.Database, id, "INSERT INTO "+db.cfg.local(r.table)+" ("+names(r.inserted()...)+") "+r.sums(seconds, where)); err != nil {
			return err
		}
	}
	return nil
}

// views fails where a server lacks a view that adds seconds up: fleet init was cut off, or
// runs now. Rows that came before a view are in no sum of it.
func (db *DB) views(ctx context.Context, server string, d Dialect, s *sender) error {
	if s.viewed[server] {
		return nil
	}
	quoted := make([]string, len(rollups))
	for i := range rollups {
		quoted[i] = quote(rollups[i].table + "_view")
	}
	n, err := db.c.number(ctx, server, d, "SELECT count() AS n FROM system.tables WHERE database = "+quote(db.cfg.Database)+" AND name IN ("+strings.Join(quoted, ", ")+")")
	switch {
	case err != nil:
		return err
	case int(n) != len(rollups):
		return fleet.Permanent(fmt.Errorf("%s: the tables of %s are not all there: run slowray fleet init to its end", server, db.cfg.Database))
	}
	if s.viewed == nil {
		s.viewed = map[string]bool{}
	}
	s.viewed[server] = true
	return nil
}
