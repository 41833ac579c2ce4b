// Package slowlog joins what a server itself calls slow with the requests that
// slowray recorded.
//
// In: entries of slow logs, and requests of the same window. Out: the entries
// summed up by statement, next to the ledgers of their requests. It reads
// nothing from the system, and what a statement's literals were is not kept.
package slowlog
