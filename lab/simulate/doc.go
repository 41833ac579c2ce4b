// Package simulate makes what a fleet of hosts would ship: web servers that call
// applications, which call databases, caches and each other. In come a seed, a number
// of hosts and a Scenario; out come fleet.Points for a model, or store.Second and
// store.Request values for a Target, second by second, and the injected truth.
//
// Times follow from each other: a database that becomes slow makes the calls to it
// slow, and the requests that wait for these. Traffic has a peak of day and a weekend,
// bursts, deploys, restarts, scheduled jobs and garbage collection; hosts differ in
// speed. The same seed gives the same fleet, and the same seconds.
//
// It knows nothing of how anomalies are found.
package simulate
