package clickhouse

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// AddEvents implements fleet.EventStore: events, and as anomalies the endpoints that
// they are about. The same event again replaces itself.
func (db *DB) AddEvents(ctx context.Context, events []fleet.Event) error {
	if len(events) == 0 {
		return nil
	}
	told, c, _ := newBlock(db.cfg.local("events"), eventDefs)
	odd, a, _ := newBlock(db.cfg.local("anomalies"), anomalyDefs)
	for i := range events {
		e := &events[i]
		second := uint32(min(max(e.At.Unix(), 0), maxTime))
		day := uint16(min(second/86400, 1<<16-1))
		row := told.rows
		c["day"].put16(row, day)
		c["time"].put32(row, second)
		c["at_us"].put64(row, uint64(e.At.UnixMicro()))
		c["id"].putText(row, e.ID)
		c["kind"].putText(row, e.Kind)
		c["text"].putText(row, e.Text)
		c["document"].putText(row, string(e.Document))
		told.rows++
		if e.Kind != "end" {
			addAnomalies(odd, a, e.Document, second, day)
		}
	}
	for _, b := range []*block{told, odd} {
		if b.rows == 0 {
			continue
		}
		if err := db.anyServer(ctx, func(server string, d Dialect) error { return db.c.insert(ctx, server, d, "", b) }); err != nil {
			return fmt.Errorf("clickhouse: events: %w", err)
		}
	}
	return nil
}

// addAnomalies adds a row for each endpoint of an event's document. One that cannot
// be read has none.
func addAnomalies(b *block, c map[string]*column, document []byte, second uint32, day uint16) {
	var doc struct {
		Endpoints []struct {
			Host, Service, Side, Addr, Signal string
			Port                              int
			Value, Expected, P                float64
		}
	}
	if json.Unmarshal(document, &doc) != nil {
		return
	}
	for _, e := range doc.Endpoints {
		side := observe.Served
		if e.Side == observe.Called.String() {
			side = observe.Called
		}
		row := b.rows
		c["day"].put16(row, day)
		c["time"].put32(row, second)
		c["host"].putText(row, e.Host)
		c["service"].putText(row, e.Service)
		c["side"].put8(row, uint8(side))
		c["addr"].putText(row, e.Addr)
		c["port"].put16(row, uint16(e.Port))
		c["signal"].putText(row, e.Signal)
		c["value"].put64(row, math.Float64bits(e.Value))
		c["expected"].put64(row, math.Float64bits(e.Expected))
		c["p"].put64(row, math.Float64bits(e.P))
		b.rows++
	}
}
