// Package callerror counts system calls that fail for lack of something the
// host has to give: space on a file system, memory, descriptors, a right.
//
// Comes in: results of system calls, from a BPF program that is attached for
// moments only, for it makes every system call of the host more expensive by some 50 ns.
// Goes out: failures by process, call and error, with the file that the first
// one of them was about. It never says whether anybody suffers.
package callerror
