// Package loadgen runs load generators and understands what they print: wrk,
// wrk2, hey, ab, k6, vegeta, oha and sysbench.
//
// In: a command line, or the output of one. Out: a Result in units of its own:
// how many requests, how many of them good, how long they took. It judges
// nothing, and what an output does not tell stays unknown.
package loadgen
