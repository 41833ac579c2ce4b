// Package uwsgi reads how many requests a running uWSGI takes up at once, and
// what it says in its log over one window.
//
// In: the processes of the host, and through /proc/PID/root the configuration
// and log files as that uWSGI sees them. Out: one observe.AppServer per master:
// processes, threads, listen queue, harakiri, each with where it was set; log
// lines by kind. Configurations in INI form and options of the command line are
// understood; others are a Gap.
//
// It never runs uwsgi, never asks its stats server, never sends a signal, never
// writes, and concludes nothing.
package uwsgi
