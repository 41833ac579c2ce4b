// Package nginx reads what a running nginx is configured to do and what it
// says in its logs over one window.
//
// In: the processes of the host, /proc, and, through /proc/PID/root, the
// configuration and log files as that nginx sees them. Out: one observe.Nginx
// per master (or per single process), with limits, listening addresses,
// upstreams, error log lines by kind and access log lines by status and
// second; what could not be read as observe.Gap, what was shed to stay within
// bounds as observe.Loss.
//
// It never runs the nginx binary (compiled-in paths are read from the text of
// the executable), never sends it a signal or a request, never writes, never
// blocks on a log that is a pipe, and concludes nothing.
package nginx
