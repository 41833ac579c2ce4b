// Package top shows the endpoints of this host live, in a terminal.
//
// In: the requests of a Source, such as request.Recorder. Out: a table of the
// last seconds, redrawn in place, with the way into an endpoint's ledger and
// into a single request's; or the same table once, as text or JSON. It is the
// only package that knows the terminal library. It never judges, changes
// nothing, and prints no control character that came from the watched host.
package top
