// Package clickhousetest runs real engines for tests and demonstrations, on free
// ports of the loopback interface and in a directory of their own: ClickHouse
// 18.16 from Debian's package, as shards, or as replicas with a ZooKeeper; and the
// engine of a present ClickHouse, chdb, behind a small HTTP front. Nothing of the
// host is touched, and the servers end with the program that started them.
//
// In: how many. Out: URLs. What the programs are missing for is reported by an error,
// or skips the test (script/setup.sh test installs them).
package clickhousetest
