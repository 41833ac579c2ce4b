// Package redis reads what a running Redis or Valkey tells about itself, and
// which commands it found slow over one window.
//
// In: a server process, /proc, its configuration file, and a way to connect to
// it. Out: an observe.Database, the entries of SLOWLOG, gaps and losses.
//
// A Redis rewrites its title and holds no log of slow commands on disk, so it
// is asked: INFO, SLOWLOG GET and CONFIG GET of a few settings, once
// before the window and once after it, over one connection each, without a
// password. Where one is needed, or the caller gives no way to connect, less is
// known and a gap says so. It never sends a command that changes anything.
package redis
