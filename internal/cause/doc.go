// Package cause is the catalogue: one file per cause, each a declaration with
// a pure check of an Observation.
//
// In: an observe.Observation, seen through a View. Out: findings with their
// evidence, or one sentence that says why the cause is ruled out. It never
// touches the system: no file, no socket, no clock. The same Observation gives
// the same result everywhere.
//
// A sign of trouble is not a finding: a check fires only on evidence that
// requests failed or waited because of it.
package cause
