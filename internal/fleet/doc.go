// Package fleet is what many hosts have in common: what a host ships of its
// history, to where, and in which form it can be asked for again.
//
// A host's agent (slowray record --to URL) follows the log of its own history
// (internal/store) and hands it over in batches (package ship). A Target takes
// batches: ClickHouse (package clickhouse), VictoriaLogs (package victorialogs),
// OTLP (package otlp). An Archive answers questions over all hosts: only
// ClickHouse is one. What is abnormal, and what the abnormal have in common, is
// judged by package anomaly, which touches nothing; package servicemap tells who
// calls whom, and joins the two ends of a request; package answer puts it
// together for slowray fleet why and top, and for the page.
//
// # Exactly once
//
// A record is known by its host, its stream and its Position, which never changes.
// An agent sends the batches of a stream in order, each of them whole or not at
// all, and the next one only when the one before is there. When it does not know
// whether a batch has arrived it asks the target for its Mark. So nothing is lost
// and nothing counted twice, whoever is killed, as long as the agent's disk holds
// what was not yet sent; what it had to give up is counted.
//
// # Service
//
// A service is what its users call it: Service.
package fleet
