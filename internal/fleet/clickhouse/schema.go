package clickhouse

import (
	"fmt"
	"strings"
	"time"
)

// schemaVersion is that of the tables as this program makes them.
const schemaVersion = 2

// Retention is how long tables keep their rows, in whole days. 0 keeps them for ever.
type Retention struct {
	Days int // requests and seconds; sums of ten seconds three times, of five minutes and findings twelve times as long
}

// days is how long a table keeps its rows.
func (r Retention) days(table string) int {
	switch table {
	case "seconds10":
		return 3 * r.Days
	case "minutes5", "findings", "anomalies", "events":
		return 12 * r.Days
	case "hosts":
		return 0
	}
	return r.Days
}

// table is a table of rows.
type table struct {
	name    string
	columns []string // as SQL
	engine  string   // without Replicated before it
	order   string
	primary string // the order's beginning that is kept in memory, as far as the dialect lets one say
	daily   bool   // in partitions of a day
}

// rollup is what rows of seconds are added up to.
type rollup struct {
	table   string
	seconds int
	parts   bool // with the histograms of all parts
}

var rollups = []rollup{{"seconds10", 10, false}, {"minutes5", 300, true}}

// dailyTables are those that rows are dropped from.
var dailyTables = []string{"requests", "seconds", "seconds10", "minutes5", "findings", "anomalies", "events"}

// tables are all tables, in a dialect.
func tables(d Dialect) []table {
	start := []string{}
	if d == Modern {
		start = []string{"`start` DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(start_us, 'UTC')"}
	}
	// Rows of an hour lie together, in it those of a history, in it as they came. So a
	// batch is in order already when it comes, a question for some minutes reads
	// what is of its hours, and the last position of a host is found by few reads.
	byHour := "(toStartOfHour(time), history, position)"
	list := []table{
		{name: "requests", columns: append(define(d, requestDefs), start...), engine: "MergeTree()", order: byHour, daily: true},
		{name: "seconds", columns: append(define(d, secondDefs), start...), engine: "MergeTree()", order: byHour, daily: true},
		{name: "findings", columns: append(define(d, findingDefs), start...), engine: "MergeTree()", order: byHour, daily: true},
		{name: "hosts", columns: define(d, hostDefs), engine: "ReplacingMergeTree(time)", order: "(host, id)"},
		{name: "anomalies", columns: define(d, anomalyDefs), engine: "ReplacingMergeTree()", order: "(time, service, host, side, addr, port, signal)", daily: true},
		{name: "events", columns: define(d, eventDefs), engine: "ReplacingMergeTree()", order: "(time, id, kind)", daily: true},
	}
	for _, r := range rollups {
		list = append(list, table{
			name: r.table, columns: r.define(d), engine: "SummingMergeTree()", daily: true,
			order: "(time, service, side, host, history, seconds, " + names(keysOf(endpointDefs)...) + ")", primary: "(time, service, side, host)",
		})
	}
	return list
}

// keysOf are the names of what rows are added up by, but for side.
func keysOf(defs []columnDef) []string {
	var keys []string
	for _, c := range defs {
		if c.name != "side" {
			keys = append(keys, c.name)
		}
	}
	return keys
}

// define writes columns of rows as they come.
func define(d Dialect, defs []columnDef) []string {
	var list []string
	for _, c := range defs {
		if c.kind == buckets {
			list = append(list, bucketColumns(d, c.name)...)
			continue
		}
		list = append(list, name(c.name)+" "+storedAs(d, c.typ, c.kind))
	}
	return list
}

func bucketColumns(d Dialect, column string) []string {
	codec := ""
	if d == Modern {
		codec = " CODEC(ZSTD(1))"
	}
	return []string{name(column+".bucket") + " Array(UInt16)" + codec, name(column+".n") + " Array(UInt64)" + codec}
}

// storedAs is a column's type with what the modern dialect adds.
func storedAs(d Dialect, typ string, kind columnKind) string {
	if d != Modern {
		return typ
	}
	switch kind {
	case keyText:
		return "LowCardinality(String)"
	case freeText:
		return "String CODEC(ZSTD(1))"
	case rising:
		return typ + " CODEC(Delta, ZSTD(1))"
	case value, greatest, least:
		return typ + " CODEC(T64, LZ4)"
	}
	return typ
}

// define writes the columns of a rollup.
func (r *rollup) define(d Dialect) []string {
	list := []string{"`day` Date", "`time` DateTime", "`service` " + storedAs(d, "String", keyText), "`host` " + storedAs(d, "String", keyText),
		"`history` " + storedAs(d, "String", keyText), "`seconds` UInt32", "`records` UInt64", "`position` AggregateFunction(max, UInt64)", "`start_us` Int64 ALIAS toInt64(toUInt32(time)) * 1000000"}
	list = append(list, define(d, endpointDefs)...)
	for _, c := range sumDefs {
		switch c.kind {
		case greatest:
			list = append(list, fmt.Sprintf("%s AggregateFunction(max, %s)", name(c.name), c.typ))
		case least:
			list = append(list, fmt.Sprintf("%s AggregateFunction(min, %s)", name(c.name), c.typ))
		default:
			list = append(list, name(c.name)+" "+storedAs(d, c.typ, c.kind))
		}
	}
	for _, c := range r.hists() {
		list = append(list, bucketColumns(d, c.name)...)
	}
	return list
}

func (r *rollup) hists() []columnDef {
	if r.parts {
		return join(histDefs, []columnDef{partsHist})
	}
	return histDefs
}

// never is the least round trip of rows that have none.
const never = "9223372036854775807"

// sums is the statement that adds rows of a table of seconds up. No expression may
// name a column that is another one's name in the answer: an old server would take
// that one. So histograms are put end to end here; the table adds their buckets up.
func (r *rollup) sums(from, where string) string {
	list := []string{"day", fmt.Sprintf("toDateTime(intDiv(toUInt32(time), %[1]d) * %[1]d) AS time", r.seconds), "service", "host", "history",
		fmt.Sprintf("toUInt32(%d) AS seconds", r.seconds), "side", names(keysOf(endpointDefs)...), "count() AS records",
		// Without it two batches may give the same sums, which replicas would take for
		// the same block sent twice.
		"maxState(position) AS position"}
	for _, c := range sumDefs {
		f := "sum(%s)"
		switch c.kind {
		case greatest:
			f = "maxState(%s)"
		case least:
			f = "minState(if(%[1]s = 0, toInt64(" + never + "), %[1]s))"
		}
		list = append(list, fmt.Sprintf(f, name(c.name))+" AS "+name(c.name))
	}
	for _, c := range r.hists() {
		for _, part := range []string{name(c.name + ".bucket"), name(c.name + ".n")} {
			list = append(list, "groupArrayArray("+part+") AS "+part)
		}
	}
	return "SELECT " + strings.Join(list, ", ") + " FROM " + from + where +
		" GROUP BY day, time, service, host, history, side, " + names(keysOf(endpointDefs)...)
}

// inserted are the columns that sums gives, in its order.
func (r *rollup) inserted() []string {
	list := append([]string{"day", "time", "service", "host", "history", "seconds", "side"}, keysOf(endpointDefs)...)
	list = append(list, "records", "position")
	for _, c := range sumDefs {
		list = append(list, c.name)
	}
	for _, c := range r.hists() {
		list = append(list, c.name+".bucket", c.name+".n")
	}
	return list
}

// Schema is the SQL that makes the tables on one server of a layout.
func (c *Config) Schema(d Dialect, shard, replica int, keep Retention) []string {
	list := []string{
		"CREATE DATABASE IF NOT EXISTS " + c.Database,
		"CREATE TABLE IF NOT EXISTS " + c.Database + ".slowray_settings (name String, value String, time DateTime) ENGINE = ReplacingMergeTree(time) ORDER BY name",
	}
	for _, t := range tables(d) {
		list = append(list, c.create(&t, d, shard, replica, keep))
		if c.sharded() {
			list = append(list, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %[1]s.%[2]s AS %[1]s.%[3]s ENGINE = Distributed(%[4]s, %[1]s, %[3]s, rand())",
				c.Database, t.name, c.local(t.name), quote(c.Cluster)))
		}
	}
	for i := range rollups {
		r := &rollups[i]
		list = append(list, fmt.Sprintf("CREATE MATERIALIZED VIEW IF NOT EXISTS %[1]s.%[2]s_view TO %[1]s.%[3]s AS %[4]s",
			c.Database, r.table, c.local(r.table), r.sums(c.Database+"."+c.local("seconds"), "")))
	}
	return list
}

func (c *Config) create(t *table, d Dialect, shard, replica int, keep Retention) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s.%s (\n    %s\n)", c.Database, c.local(t.name), strings.Join(t.columns, ",\n    "))
	engine := t.engine
	if c.replicated() {
		// All replicas of a shard have the same path, each its own name.
		of := fmt.Sprintf("'/slowray/%s/shard%d/%s', %s", c.Database, shard+1, t.name, quote(c.Shards[shard][replica]))
		kind, args, _ := strings.Cut(strings.TrimSuffix(engine, ")"), "(")
		if args != "" {
			of += ", " + args
		}
		engine = "Replicated" + kind + "(" + of + ")"
	}
	fmt.Fprintf(&b, " ENGINE = %s", engine)
	if t.daily {
		b.WriteString(" PARTITION BY day")
	}
	if d == Modern && t.primary != "" {
		b.WriteString(" PRIMARY KEY " + t.primary)
	}
	b.WriteString(" ORDER BY " + t.order)
	if days := keep.days(t.name); d == Modern && t.daily && days > 0 {
		b.WriteString(" TTL " + ttl(days))
	}
	settings := []string{"index_granularity = 8192"}
	if c.replicated() {
		// The same block again is known as such for so many blocks: of all hosts of
		// a shard together.
		settings = append(settings, "replicated_deduplication_window = 10000")
	}
	if d == Modern {
		settings = append(settings, "ttl_only_drop_parts = 1")
	}
	b.WriteString(" SETTINGS " + strings.Join(settings, ", "))
	return b.String()
}

// ttl ends rows by whole days, so that whole parts go at once.
func ttl(days int) string { return fmt.Sprintf("day + toIntervalDay(%d)", days) }

// dayOf is the day of a time, in days since 1970, UTC.
func dayOf(t time.Time) int { return int(t.Unix() / 86400) }
