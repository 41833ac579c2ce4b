// Package clickhouse keeps the histories of many hosts in ClickHouse: it is a
// fleet.Target and a fleet.Archive, and makes the tables.
//
// In: batches of a host, questions over all hosts. Out: rows by the HTTP interface
// in columns (FORMAT Native, LZ4), SQL that both a present ClickHouse and one of
// 2018 understand, in two dialects where they differ. It never changes a table but
// in Init, and in Retain, which drops what is older than it was asked to keep.
//
// docs/fleet-clickhouse.md says how the tables are cut, docs/fleet-guarantees.md what is guaranteed.
package clickhouse
