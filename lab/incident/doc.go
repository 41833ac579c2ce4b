// Package incident declares the lab's incidents: which servers, which load,
// which injected faults and in which order they are fixed. Declarations only;
// package lab runs them.
//
// A fault says what it injects and which cause slowray should name for it. It
// does not say that it hurts: the lab measures that at each run.
package incident
