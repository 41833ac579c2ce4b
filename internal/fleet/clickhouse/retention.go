package clickhouse

import (
	"context"
	"fmt"

	"github.com/ClickHouse/ch-go/proto"
)

// setTTL says how long rows are kept where the server sees to it by itself.
func (c *client) setTTL(ctx context.Context, server string, d Dialect, keep Retention) error {
	if d != Modern {
		return nil
	}
	for _, t := range dailyTables {
		statement := fmt.Sprintf("ALTER TABLE %s MODIFY TTL %s", c.cfg.local(t), ttl(keep.days(t)))
		if keep.Days == 0 {
			// A TTL that is not there cannot be removed; one of a century can be set.
			statement = fmt.Sprintf("ALTER TABLE %s MODIFY TTL %s", c.cfg.local(t), ttl(36500))
		}
		if err := c.exec(ctx, server, c.cfg.Database, statement); err != nil {
			return err
		}
	}
	return nil
}

// drop drops the days that are older than they are to be kept, by the server's own
// clock, where it does not do so itself; it says how many. To run it twice at once
// does no harm.
func (c *client) drop(ctx context.Context, server string, d Dialect, keep Retention) (int, error) {
	if d == Modern || keep.Days == 0 {
		return 0, nil
	}
	dropped := 0
	for _, t := range dailyTables {
		local := c.cfg.local(t)
		var days proto.ColStr
		var old []string
		err := c.query(ctx, server, d, maxKept, fmt.Sprintf(
			"SELECT DISTINCT partition FROM system.parts WHERE active AND database = %s AND table = %s AND toDate(replaceAll(partition, '\\'', '')) < today() - %d",
			quote(c.cfg.Database), quote(local), keep.days(t)), proto.Results{{Data: &days}}, func(n int) bool {
			for i := range n {
				old = append(old, days.Row(i))
			}
			return true
		})
		if err != nil {
			return dropped, err
		}
		for _, partition := range old {
			if !plainDay(partition) {
				continue
			}
			if err := c.exec(ctx, server, c.cfg.Database, fmt.Sprintf("ALTER TABLE %s DROP PARTITION '%s'", local, partition)); err != nil {
				return dropped, err
			}
			dropped++
		}
	}
	return dropped, nil
}

// plainDay says whether a partition's name is a date, 2026-11-22.
func plainDay(s string) bool {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return false
	}
	for i := range len(s) {
		if i != 4 && i != 7 && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}
