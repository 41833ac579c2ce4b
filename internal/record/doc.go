// Package record watches a host all the time.
//
// In: the stream of requests (request.Stream) and windows of internal/watch, one
// after the other. Out: sums of each endpoint and second, requests, Observations
// and findings, to the store and to whoever subscribes (Sink). It decides which
// requests are kept in full, never what is wrong: that diagnose does.
package record
