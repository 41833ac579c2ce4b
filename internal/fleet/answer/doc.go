// Package answer says why services of a fleet are slow, which are slow now, and when
// that begins and ends: slowray fleet why, top and watch, and the fleet's page.
//
// In: a fleet.Archive and a Question. Out: a Report, as text and as JSON
// (schema/fleet.schema.json). It reads the archive and nothing else; what is abnormal is
// judged by package anomaly, who calls whom by package servicemap, and what is wrong on a
// host by that host itself. The same archive gives the same report. What could not be
// known is reported in it; a host that does not answer is no host that is well.
package answer
