// Package commandline is what the command lines of slowray and slowray-lab have in
// common: exit statuses, durations, what is wrong with a command line in one line, the
// end by a signal, progress on a terminal, and the flags of the lab, which slowray
// documents and completes and slowray-lab obeys.
//
// In: arguments and streams. Out: a parsed command that runs, and its exit status. It
// knows nothing of what commands do.
package commandline
