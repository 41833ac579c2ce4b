// Package ship sends a host's history to targets, while it is made and after the
// target was away.
//
// In: the logs of a store (internal/store), each of which has a second name below
// DIR/ship/TARGET as long as something in it was not sent. Out: batches to
// fleet.Targets, in order, each record once. It never makes the recorder wait and
// never judges.
//
// # On disk
//
//	DIR/id                               the ID of the history
//	DIR/ship/TARGET/requests.17.log      a log, not yet sent whole: the store's own file, linked
//	DIR/ship/TARGET/requests.cursor      how far the stream was sent, and the batch that is under way
//	DIR/ship/TARGET/past/                the same of what was recorded before the target was given (past.go)
//	DIR/ship/status.json                 how far all are, for record --status
//
// So nothing is written twice, what a target has not taken outlives the Parquet
// conversion and the retention of the store, and after kill -9 the follower goes on
// with the frames that are durable. The Position of a record is the number of its
// log and its place in it, which never change.
//
// # Exactly once
//
// The bounds of a batch are noted before it is sent: it is the same batch when it is
// retransmitted. After an error, and at the start, the target is asked for its Mark
// before anything else is sent.
package ship
