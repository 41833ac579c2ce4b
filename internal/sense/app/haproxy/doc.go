// Package haproxy reads how many connections a running HAProxy takes up, and
// what it says of its frontends and servers over one window.
//
// In: the processes of the host, and through /proc/PID/root the configuration
// and log files as that HAProxy sees them. Out: one observe.AppServer per
// master: the limits of frontends and servers with file and line, which
// frontend passes to which server, log lines by kind. Where the statistics
// socket is a unix socket that may be connected to, the figures of "show stat"
// are read from it.
//
// Of the socket's commands it sends "show stat" only, which changes nothing. It
// never asks a statistics page, never writes a file, and concludes nothing.
package haproxy
