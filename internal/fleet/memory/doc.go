// Package memory is a fleet in memory: a Target that keeps what is sent to it, and
// an Archive that answers from that.
//
// In: batches, or single records by Add…. Out: the answers of fleet.Archive, by the
// plainest means there are, so that they are right; other archives can be held
// against it. It is for tests, demonstrations and one machine's worth of hosts: what
// it keeps is bounded by memory only.
package memory
