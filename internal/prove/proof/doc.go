// Package proof proves one cause on this host: it makes the cause's changes under
// a lease, runs the experiment, and tells what came of it.
//
// In: an Observation and the cause that is asked for. Out: a Document, as text or
// as JSON (schema/prove.schema.json). It decides nothing about causes, which
// internal/diagnose does, and nothing about effects, which internal/prove/experiment
// does; what is changed goes through internal/prove/journal.
package proof
