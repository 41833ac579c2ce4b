package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// DB is a ClickHouse with the tables that Init made: a fleet.Target and a
// fleet.Archive.
type DB struct {
	cfg *Config
	c   *client

	mu      sync.Mutex
	dialect Dialect // Auto until a server was asked

	streams map[fleet.Stream]*sender // one goroutine each
	retain  atomic.Int64             // when days are dropped next, s since 1970

	fixedSettings atomic.Bool // the user may not change settings of a query
	signs         signs       // of servers that have replicas
	namesakes     namesakes   // of the goroutine that says Hello
}

var (
	_ fleet.Target     = (*DB)(nil)
	_ fleet.Archive    = (*DB)(nil)
	_ fleet.EventStore = (*DB)(nil)
	_ fleet.Lingerer   = (*DB)(nil)
)

// Open makes a DB of a URL; nothing is asked before the first use.
func Open(text string) (*DB, error) {
	cfg, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return New(cfg), nil
}

// New is Open for a URL that was read already.
func New(cfg *Config) *DB {
	db := &DB{cfg: cfg, c: newClient(cfg), dialect: cfg.Dialect, streams: map[fleet.Stream]*sender{}}
	for _, s := range []fleet.Stream{fleet.Requests, fleet.Seconds, fleet.Findings} {
		db.streams[s] = &sender{unsettled: unsettled{}}
		for _, gateway := range cfg.Gateways {
			db.streams[s].unsettled[gateway] = time.Now()
		}
	}
	return db
}

// Close lets go of connections.
func (db *DB) Close() error {
	db.c.http.CloseIdleConnections()
	return nil
}

// Linger implements fleet.Lingerer.
func (db *DB) Linger(s fleet.Stream) time.Duration {
	if s == fleet.Findings {
		return 0 // there is a batch of them each window
	}
	return db.cfg.Linger
}

// shardOf is the shard of a host: the same as long as the number of shards is.
func (db *DB) shardOf(h *fleet.Host) int {
	f := fnv.New64a()
	f.Write([]byte(h.ID))
	// FNV's low bits alone are poor.
	v := f.Sum64()
	v ^= v >> 32
	return int(v % uint64(len(db.cfg.Shards)))
}

// speaks is the dialect of the servers, asked for once.
func (db *DB) speaks(ctx context.Context, server string) (Dialect, error) {
	db.mu.Lock()
	d := db.dialect
	db.mu.Unlock()
	if d != Auto {
		return d, nil
	}
	d, _, err := db.c.dialectOf(ctx, server)
	if err == nil {
		db.mu.Lock()
		db.dialect = d
		db.mu.Unlock()
	}
	return d, err
}

// eachReplica tries f on the servers of a shard, until it succeeds on one; others are
// only tried after those that can not even be reached, or say nothing.
func (db *DB) eachReplica(ctx context.Context, shard int, f func(server string, d Dialect) error) error {
	var err error
	servers := db.cfg.Shards[shard]
	for _, server := range servers {
		if db.mayPassOver(servers) && db.isSilent(ctx, server) {
			err = errors.Join(err, fmt.Errorf("%s: %w", server, errSilent))
			continue
		}
		d, tried := db.speaks(ctx, server)
		if tried == nil {
			tried = f(server, d)
		}
		if tried == nil {
			return nil
		}
		err = tried
		if !notBegun(err) && codeOf(err) != codeReadOnly || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// mayPassOver says whether a server that says nothing may be passed over. What it still
// holds of a batch it may take when it goes on, and knows for the same as the one that a
// replica has taken meanwhile; but not what a gateway has put together.
func (db *DB) mayPassOver(servers []string) bool {
	return len(servers) > 1 && len(db.cfg.Gateways) == 0
}

// anyServer asks one server that answers, whichever: of a distributed table each
// tells all.
func (db *DB) anyServer(ctx context.Context, f func(server string, d Dialect) error) error {
	var err error
	for shard := range db.cfg.Shards {
		if err = db.eachReplica(ctx, shard, f); err == nil || !notBegun(err) && !errors.Is(err, errSilent) || ctx.Err() != nil {
			break
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if names := db.silentServers(); len(names) > 0 {
			err = fmt.Errorf("%w (%s: %w)", err, strings.Join(names, ", "), errSilent)
		}
	}
	return err
}

// Hello implements fleet.Target. Where servers do not drop old rows by themselves,
// hosts see to it, each about once an hour.
func (db *DB) Hello(ctx context.Context, h *fleet.Host, now time.Time) error {
	b, err := helloRow(db.cfg.local("hosts"), h, now)
	if err != nil {
		return err
	}
	shard := db.shardOf(h)
	if err := db.eachReplica(ctx, shard, func(server string, d Dialect) error {
		if err := db.c.insert(ctx, server, d, "", b); err != nil {
			return err
		}
		return db.look(ctx, server, h, now)
	}); err != nil {
		return fmt.Errorf("clickhouse: %w", err)
	}
	return db.retainNow(ctx, shard, now)
}

// retainNow drops what is too old on a shard, if the time has come.
func (db *DB) retainNow(ctx context.Context, shard int, now time.Time) error {
	next := db.retain.Load()
	if next == 0 {
		// Not all hosts at once after all were started at once.
		db.retain.CompareAndSwap(0, now.Unix()+now.UnixNano()%3600)
		return nil
	}
	if now.Unix() < next || !db.retain.CompareAndSwap(next, now.Unix()+3600) {
		return nil
	}
	return db.eachReplica(ctx, shard, func(server string, d Dialect) error {
		if d == Modern {
			return nil
		}
		set, err := db.c.settings(ctx, server, d)
		if err != nil {
			return err
		}
		_, err = db.c.drop(ctx, server, d, retentionOf(set))
		return err
	})
}
