// Package postgres reads what a running PostgreSQL is configured to do, what
// its backends' titles say of sessions and locks, and what it writes into its
// log over one window, statements that took long among it.
//
// In: a postmaster and its backends, /proc, and, through /proc/PID/root, the
// configuration and the log as that server sees them. Out: an
// observe.Database, the entries of statements with a duration, gaps and losses.
//
// It never logs in. Lines in another language than English (lc_messages), and
// logs as CSV or JSON only, are not understood.
package postgres
