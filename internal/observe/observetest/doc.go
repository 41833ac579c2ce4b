// Package observetest makes Observations of hosts that nobody has: with as many
// endpoints, processes, namespaces, waits and drops as a test or a benchmark
// asks for, so that what judging costs can be measured.
//
// In: a Host, which is numbers. Out: an Observation as slowray would record it
// there, the same one for the same Host. It touches no system, and only tests
// import it.
package observetest
