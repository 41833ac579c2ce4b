// Package sandbox makes a private place for an incident: its own process,
// mount and network namespaces, a second network namespace for the client, if
// asked a third one for a backend, and what joins them: a veth pair, which can be
// made to lose packets, or an emulated link.
//
// In: what to run and which settings to change. Out: processes that run
// there. It knows nothing of incidents, and it never leaves anything behind:
//
//   - Everything runs below one process, the init of a new process namespace.
//     When init dies the kernel kills all the others; the network namespaces
//     have no name and vanish with their last process.
//   - Init ends when its control connection to the caller ends, which the
//     kernel closes however the caller dies, and in any case when its lifetime
//     is over. Before it ends it takes back what was changed outside.
//   - The caller takes back the same things when init dies.
//   - What has to be taken back (host-wide settings, control groups, the
//     directory of files) is in a journal, written to disk before it is done.
//     Should both have been killed, the next run or [Repair] reads it.
//
// One lock serialises runs of the lab on a host: a second load on the same
// CPUs would make both measurements worthless.
package sandbox
