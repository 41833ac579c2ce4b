// Package pool is what the readers of application servers with a limited number
// of workers have in common: finding the master among its children, following
// logs, looking at whether the workers are busy, gaps and losses.
//
// In: the processes of the host, /proc, and what a Server says of one kind of
// server. Out: one observe.AppServer per master, with observe.Gap for what
// could not be read and observe.Loss for what was shed.
//
// It knows no program's configuration or log format, never runs a program,
// never sends a signal, never writes, and concludes nothing.
package pool
