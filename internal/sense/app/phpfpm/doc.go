// Package phpfpm reads what a running php-fpm is configured to do, how busy
// its pools are, and what it says in its log over one window.
//
// In: the processes of the host, /proc, and, through /proc/PID/root, the
// configuration and log files as that php-fpm sees them; what each child is
// doing comes from a function of the caller. Out: one observe.PHPFPM per
// master, with each pool's limits, busy children and log lines by kind; what
// could not be read as observe.Gap, what was shed as observe.Loss.
//
// It never runs the php-fpm binary, never asks its status page, never sends a
// signal, never writes, and concludes nothing.
package phpfpm
