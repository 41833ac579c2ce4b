package clickhouse

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// dialectOf is what a server understands, as it was said, or by its version.
func (c *client) dialectOf(ctx context.Context, server string) (Dialect, string, error) {
	// Without a database: it may not be there yet.
	rows, err := c.small(ctx, server, "", "SELECT version()", 1)
	if err != nil {
		return "", "", err
	}
	if len(rows) != 1 || strings.Trim(rows[0][0], "0123456789.-abcdefghijklmnopqrstuvwxyz") != "" || !strings.ContainsAny(rows[0][0], "0123456789") {
		return "", "", fleet.Permanent(fmt.Errorf("%s: tells no version of ClickHouse", server))
	}
	v := rows[0][0]
	if c.cfg.Dialect != Auto {
		return c.cfg.Dialect, v, nil
	}
	return dialectOfVersion(v), v, nil
}

// dialectOfVersion is the dialect of a version: "23.8.1.2" and later are modern.
func dialectOfVersion(v string) Dialect {
	parts := strings.Split(v, ".")
	major, _ := strconv.Atoi(parts[0])
	minor := 0
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	if major > 23 || major == 23 && minor >= 8 {
		return Modern
	}
	return Plain
}

// Print writes the SQL that Init would run, for each server. Without a dialect it is
// the modern one.
func (c *Config) Print(w io.Writer, keep Retention) error {
	d := c.Dialect
	if d == Auto {
		d = Modern
	}
	for s, replicas := range c.Shards {
		for r, server := range replicas {
			if _, err := fmt.Fprintf(w, "-- on %s, dialect %s\n%s;\n\n", server, d, strings.Join(c.Schema(d, s, r, keep), ";\n\n")); err != nil {
				return err
			}
		}
	}
	return nil
}

// Init makes the tables on all servers, or fixes them, and tells what it did, a line
// for each server. It can be run again at any time: what is there stays. keep is nil
// when what rows are kept for is to stay as it is.
func Init(ctx context.Context, cfg *Config, keep *Retention, say func(line string)) error {
	c := newClient(cfg)
	defer c.http.CloseIdleConnections()
	for s, replicas := range cfg.Shards {
		for r, server := range replicas {
			if err := c.initServer(ctx, s, r, keep, func(what string) { say(server + ": " + what) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *client) initServer(ctx context.Context, shard, replica int, keep *Retention, say func(string)) error {
	server := c.cfg.Shards[shard][replica]
	d, version, err := c.dialectOf(ctx, server)
	if err != nil {
		return err
	}
	if d == Modern && dialectOfVersion(version) == Plain {
		return fleet.Permanent(fmt.Errorf("%s: ClickHouse %s does not know the modern dialect, which 23.8 and later do: leave out dialect=modern", server, version))
	}
	if err := c.exec(ctx, server, "", "CREATE DATABASE IF NOT EXISTS "+c.cfg.Database); err != nil {
		return err
	}
	before, err := c.settings(ctx, server, d)
	if err != nil && codeOf(err) != codeUnknownTable {
		return err
	}
	had, _ := strconv.Atoi(before["schema"])
	if had > schemaVersion {
		return fleet.Permanent(fmt.Errorf("%s: its tables are of version %d, this slowray knows %d: take a newer one", server, had, schemaVersion))
	}
	if was := before["dialect"]; was != "" && was != string(d) {
		return fleet.Permanent(fmt.Errorf("%s: its tables were made in the %s dialect: say dialect=%s", server, was, was))
	}
	if c.cfg.sharded() {
		if err := c.knowsCluster(ctx, server, d); err != nil {
			return err
		}
	}
	days, _ := strconv.Atoi(before["retention_days"])
	kept := Retention{days}
	if keep != nil {
		kept = *keep
	}
	added, err := c.addColumns(ctx, server, d)
	if err != nil {
		return err
	}
	for _, statement := range c.cfg.Schema(d, shard, replica, kept) {
		if err := c.exec(ctx, server, "", statement); err != nil {
			return fmt.Errorf("%w (while it ran: %s)", err, firstLine(statement))
		}
	}
	set := map[string]string{"schema": strconv.Itoa(schemaVersion), "dialect": string(d)}
	if keep != nil {
		set["retention_days"] = strconv.Itoa(keep.Days)
		if err := c.setTTL(ctx, server, d, *keep); err != nil {
			return err
		}
	}
	if err := c.set(ctx, server, set); err != nil {
		return err
	}
	switch {
	case had == 0:
		say(fmt.Sprintf("ClickHouse %s, %s dialect: tables made in %s", version, d, c.cfg.Database))
	case had < schemaVersion:
		say(fmt.Sprintf("ClickHouse %s, %s dialect: tables of %s made version %d of version %d", version, d, c.cfg.Database, schemaVersion, had))
	default:
		say(fmt.Sprintf("ClickHouse %s, %s dialect: tables of %s are there (version %d)", version, d, c.cfg.Database, had))
	}
	if added > 0 {
		say(fmt.Sprintf("%d columns added that were not there", added))
	}
	dropped, err := c.drop(ctx, server, d, kept)
	if dropped > 0 {
		say(fmt.Sprintf("%d days of rows dropped that were older than they are kept", dropped))
	}
	return err
}

// addColumns adds the columns that tables of before lack, and says how many. A table that
// is not there has none, and is made whole.
func (c *client) addColumns(ctx context.Context, server string, d Dialect) (added int, err error) {
	rows, err := c.small(ctx, server, "", "SELECT table, name FROM system.columns WHERE database = "+quote(c.cfg.Database), 2)
	if err != nil {
		return 0, err
	}
	there := map[string]map[string]bool{}
	for _, row := range rows {
		if there[row[0]] == nil {
			there[row[0]] = map[string]bool{}
		}
		there[row[0]][row[1]] = true
	}
	for _, t := range tables(d) {
		names := []string{c.cfg.local(t.name)}
		if c.cfg.sharded() {
			names = append(names, t.name)
		}
		for _, table := range names {
			for _, column := range t.columns {
				name, _, _ := strings.Cut(strings.TrimPrefix(column, "`"), "`")
				if there[table] == nil || there[table][name] {
					continue
				}
				if err := c.exec(ctx, server, c.cfg.Database, "ALTER TABLE "+table+" ADD COLUMN "+column); err != nil {
					return added, fmt.Errorf("%w (while a column was added: %s of %s)", err, name, table)
				}
				added++
			}
		}
	}
	return added, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line[:min(len(line), 120)]
}

// knowsCluster fails where the server does not know the cluster, or another one by
// its name.
func (c *client) knowsCluster(ctx context.Context, server string, d Dialect) error {
	n, err := c.number(ctx, server, d, "SELECT toUInt64(max(shard_num)) AS n FROM system.clusters WHERE cluster = "+quote(c.cfg.Cluster))
	if err != nil {
		return err
	}
	if int(n) != len(c.cfg.Shards) {
		return fleet.Permanent(fmt.Errorf("%s: its remote_servers have %d shards in the cluster %s, the URL has %d", server, n, c.cfg.Cluster, len(c.cfg.Shards)))
	}
	return nil
}

// settings reads what Init noted on a server.
func (c *client) settings(ctx context.Context, server string, d Dialect) (map[string]string, error) {
	rows, err := c.small(ctx, server, c.cfg.Database, "SELECT name, argMax(value, time) AS last FROM slowray_settings GROUP BY name", 2)
	all := map[string]string{}
	for _, row := range rows {
		all[row[0]] = row[1] // both are plain words: nothing is escaped
	}
	return all, err
}

// set notes settings on a server.
func (c *client) set(ctx context.Context, server string, values map[string]string) error {
	var rows []string
	for n, v := range values {
		rows = append(rows, fmt.Sprintf("(%s, %s, %d)", quote(n), quote(v), time.Now().Unix()))
	}
	return c.exec(ctx, server, c.cfg.Database, "INSERT INTO slowray_settings (name, value, time) VALUES "+strings.Join(rows, ", "))
}
