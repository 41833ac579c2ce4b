// Package lab runs reproducible incidents and judges slowray by them.
//
// In: the name of an incident. It starts real servers in private network
// namespaces (lab/sandbox, lab/server), injects faults (lab/incident), makes
// load (lab/load), and lets slowray look at it, as an external program that is
// told nothing but the port. Out: a [Result]: what was injected, what really
// hurt, what slowray found, and where the two differ.
//
// Truth is measured, not assumed. For each set of injected faults the lab
// measures good answers per second, errors and latency, as injected and with
// each fault removed alone, and compares. The rules are in judge.go and
// truth.go. Each measurement is a [trial] in a sandbox of its own, so that no
// connection in TIME_WAIT and no tracked connection outlives it.
//
// An incident may have phases instead of faults: states of the network under
// the same load. Then slowray's own figures are compared with what the clients
// and the emulated links counted (phases_judge.go).
//
// [Tune] has slowray tune fix what is injected instead, and judges what that
// leaves by the load generator's word, and what slowray undo leaves by a look at
// all that could have been changed (tune*.go).
//
// [Bench] does the same with incidents that nobody designed: they are drawn
// (lab/grammar), and their fixes are tried, too.
//
// The lab takes slowray for a program, and not its packages for granted: a mistake there
// must not be able to hide itself here. Only whether a report contradicts itself is
// asked of a package next to it.
package lab
