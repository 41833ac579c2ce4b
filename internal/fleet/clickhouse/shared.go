package clickhouse

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// Two hosts that ship one history, since its directory or a machine's image was copied,
// have the same positions: what one sends the other takes for its own, and leaves out. So a
// host looks now and then whether others say Hello with the ID of its history. A host that
// has another name than before does not: its old name says nothing any more.

const (
	// lookOften is how many of the first Hellos look, lookEvery which of the others.
	lookOften, lookEvery = 4, 10
	// sharedFor is how long another host counts as known after its last Hello was seen.
	sharedFor = 3 * time.Minute
)

// namesakes are the other hosts of a history, by their names in hexadecimal digits, with
// when each last said Hello, s since 1970. It is of the goroutine that says Hello.
type namesakes struct {
	hellos int
	began  int64 // s since 1970: of the first look
	seen   map[string]int64
	other  string // that ships the same history, until some time
	until  time.Time
}

// look fails when another host has said Hello since the last look.
func (db *DB) look(ctx context.Context, server string, h *fleet.Host, now time.Time) error {
	n := &db.namesakes
	n.hellos++
	if n.other == "" && n.hellos > lookOften && n.hellos%lookEvery != 0 {
		return nil
	}
	rows, err := db.c.small(ctx, server, db.cfg.Database, "SELECT hex(CAST(host AS String)) AS name, toUInt32(max(time)) AS last FROM "+db.cfg.local("hosts")+
		" WHERE id = "+quote(h.ID)+" AND host != "+quote(h.Name)+" GROUP BY host ORDER BY last DESC LIMIT 10", 2)
	if err != nil {
		return err
	}
	seen := map[string]int64{}
	for _, row := range rows {
		last, _ := strconv.ParseInt(row[1], 10, 64)
		seen[row[0]] = last
		// A name that was not there before is another host's, unless it is older than this
		// process: then a replica was late.
		if before, known := n.seen[row[0]]; known && last > before || !known && n.seen != nil && last >= n.began {
			n.other, n.until = row[0], now.Add(sharedFor)
		}
	}
	if n.seen == nil {
		n.began = now.Unix()
	}
	n.seen = seen
	if n.other == "" || now.After(n.until) {
		n.other = ""
		return nil
	}
	name, err := hex.DecodeString(n.other)
	if err != nil {
		return err
	}
	return fleet.Permanent(fmt.Errorf("host %.100q ships the same history (%s): was its directory copied? Records are lost until one of the two begins a history anew: remove its files id and ship there", name, h.ID))
}
