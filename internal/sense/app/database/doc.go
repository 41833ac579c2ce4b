// Package database is what the readers of database and cache servers have in
// common: one server process with its root directory, its arguments, its log,
// and the connections that it holds over a window.
//
// In: a process of the host, /proc, and files as that process sees them. Out:
// an observe.Database that the package of each server fills, with gaps and
// losses. It never writes and concludes nothing.
package database
