// Package pgbouncer reads how many connections to its databases a running PgBouncer
// keeps.
//
// In: the processes of the host, and through /proc/PID/root the configuration as that
// PgBouncer sees it. Out: one observe.AppServer per process: the size of the pools, with
// file and line.
//
// It never asks the console of a PgBouncer, never writes a file, and concludes nothing.
package pgbouncer
