// Package report puts a judgement into words for people and into JSON for
// programs.
//
// In: a diagnose.Report, or recorded requests one by one. Out: text, the JSON
// of the contract, or TCPRT's log lines. It adds no judgement of its own. Everything that came from the watched host (process
// names, log lines, paths) is untrusted: control characters never reach the
// terminal.
package report
