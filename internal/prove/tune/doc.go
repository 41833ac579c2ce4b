// Package tune fixes a service step by step: look under load, change one thing,
// measure before, with and after it, keep what helps, and look again.
//
// In: a World, which looks, proves a finding's changes and measures. Out: a
// Report of the steps, as a table, JSON (schema/tune.schema.json) or an offline
// page. The loop itself ([Run]) touches nothing: what does is behind World, and
// every change goes through internal/prove/journal. It makes no change that no
// finding asks for, and none twice that did not help, but where something that
// may have hidden its effect was fixed since.
package tune
