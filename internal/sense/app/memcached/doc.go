// Package memcached reads the limits of a running memcached and what it tells
// about itself over one window.
//
// In: a server process, /proc, and a way to connect to it. Out: an
// observe.Database, gaps and losses. The limits are its arguments; how many
// connections it refused it is asked: "stats", once before the window and once
// after it, without a password. It never sends a command that changes anything.
package memcached
