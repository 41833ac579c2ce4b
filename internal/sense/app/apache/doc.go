// Package apache reads how many requests a running Apache httpd takes up at
// once, and what it says in its error log over one window.
//
// In: the processes of the host, and through /proc/PID/root the configuration
// and log files as that httpd sees them. Out: one observe.AppServer per master:
// its MPM, MaxRequestWorkers with file and line, listening addresses, log lines
// by kind. Which MPM runs is known by what the process has mapped.
//
// It never runs httpd or apachectl, never asks for server-status, never writes,
// and concludes nothing.
package apache
