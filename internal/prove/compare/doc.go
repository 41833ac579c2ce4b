// Package compare puts two saved Observations side by side: what got better, what
// worse, and what was set otherwise.
//
// In: two Observations. Out: a Document, as text or as JSON
// (schema/compare.schema.json). It is pure, and judges a difference only where an
// Observation has a course to judge it by; elsewhere it tells the figures.
package compare
