// Package diagnose judges an Observation: it runs every cause of the
// catalogue, ranks what was found, folds consequences under their causes and
// says what was ruled out and what could not be checked.
//
// In: an observe.Observation. Out: a Report, whose JSON form is a contract
// (schema/report.schema.json). It is pure: the same Observation gives the same
// Report byte for byte, on any machine, at any time, unless it was ended early: by its
// context, or by a Bound of its own, for others decide how much there is to judge.
package diagnose
