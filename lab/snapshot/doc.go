// Package snapshot writes down all that slowray could have changed on a host, to
// prove that nothing of it is left.
//
// In: which network namespaces, processes, control groups and files to look at;
// the host's sysctls, devices and rules are always looked at. Out: one line for
// each setting, and what differs between two snapshots. It changes nothing, and
// leaves out what changes by itself: counters, and what the kernel tunes.
package snapshot
