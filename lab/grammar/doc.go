// Package grammar draws incidents that nobody designed: a cause, servers and
// languages, where they run, who calls whom, a load, how strong the fault is, and what
// else goes on there. A seed and a number give the same incident again.
//
// In: a seed and a number. Out: a [Draw], which package lab can run as any incident.
// Whether its fault does harm is not known here: the lab measures that.
package grammar
