// Package victorialogs sends what hosts ship to VictoriaLogs, alone or as a cluster.
//
// In: batches. Out: lines of JSON (its jsonline API), one for each record, of which
// docs/fleet-targets.md lists the fields. It answers no questions: VictoriaLogs' own LogsQL
// does.
//
// # Once
//
// The front of a cluster says that it has taken lines before a storage node has them,
// sends them in pieces, and elsewhere when a node does not answer: a batch is not
// whole or absent, and the greatest position says nothing about those before it. So
// there is no Mark. Of a batch that was sent before, Send asks which positions are
// there, once they can be seen, and sends the others.
// What the front itself loses when it is killed, the lines of a second, is lost.
package victorialogs
