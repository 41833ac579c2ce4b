// Package alert notifies people and their tools when harm to requests begins and ends.
//
// In: seconds and judged windows of a recorder (it is a record.Sink), or what is abnormal
// in a fleet, and a file of rules. Out: messages to Alertmanager, PagerDuty, a webhook, a Slack-compatible hook or
// a command. One incident is one alert: what follows from a cause is folded into it, harm
// that comes and goes stays one incident, and an incident whose cause becomes known keeps
// its identity. What is harm a fleet's watcher judges (package anomaly), which has learned
// for days; a host alone has to judge half a minute after it begins to look, and this
// package does so itself.
//
// What is open and what waits to be sent is one file that is replaced as a whole: a
// message is in it before it is sent and until it was taken, so that none is lost by a kill, a
// restart, or a receiver that is away. Each has an identity by which receivers that know
// of such a thing leave out what they have seen. It never asks a host anything, and
// reaches only what its file of rules names.
package alert
