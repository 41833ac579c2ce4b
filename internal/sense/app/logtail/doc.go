// Package logtail follows a growing log over one window and counts its lines.
//
// In: the path of a log, as the program that writes it sees it. Out: every
// whole line written between Open and Read, across rotation and truncation,
// and the statistics of the reading; also what all application logs share:
// counters by kind, the test whether a line's time lies in the window, and
// text made safe to print.
//
// It never blocks on a pipe or a device, never holds more than one buffer of a
// log in memory, never writes, and knows nothing of any program's log format.
package logtail
