// Package gunicorn reads how many requests a running gunicorn takes up at once,
// and what it says in its error log over one window.
//
// In: the processes of the host, and through /proc/PID/root the configuration
// and log files as that gunicorn sees them. Out: one observe.AppServer per
// arbiter: workers, threads, worker class, timeout, backlog, each with where it
// was set; log lines by kind. A configuration file is a program in Python: only
// plain assignments of numbers and texts are understood, the rest is a Gap.
//
// It never runs Python, never sends a signal, never writes, and concludes
// nothing.
package gunicorn
