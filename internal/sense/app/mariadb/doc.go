// Package mariadb reads what a running MariaDB or MySQL server is configured
// to do, how many connections it holds, and what it says in its error log and
// its slow log over one window.
//
// In: a server process, /proc, and, through /proc/PID/root, the option files
// and logs as that server sees them. Out: an observe.Database, the entries of
// the slow log, gaps and losses.
//
// It never logs in: a limit that was changed with SET GLOBAL since the start
// is not seen, and a connection is never taken from who needs the last one.
package mariadb
