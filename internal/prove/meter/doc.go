// Package meter measures blocks of an experiment: on the service's own traffic,
// as internal/sense/request records it, or under a load that is run for each.
//
// In: the service that is meant, and a load if one was given. Out:
// experiment.Block. It judges nothing and changes nothing; a load that it runs is
// the user's own command.
package meter
