// Package blind scores slowray on incidents that were drawn (lab/grammar), and fits
// what it says about its own confidence to how often it was right.
//
// In: one [Result] for each draw, as package lab measured it. Out: a [Score], the page
// docs/scoreboard.md, and the table of internal/diagnose/confidence_table.go. It runs
// nothing.
package blind
