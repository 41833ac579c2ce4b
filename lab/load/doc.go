// Package load describes the traffic of an incident and reads what a load
// generator saw of it.
//
// In: a [Load]; out: the command to run in the client's network namespace and,
// of its output, an [Outcome]. wrk makes the closed-loop load; the small client
// of this package makes what wrk cannot: clients that close first, clients
// that give up, that think, that come all at once, that read slowly, that have
// many addresses, and requests at a fixed rate.
package load
