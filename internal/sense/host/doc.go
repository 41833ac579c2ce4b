// Package host reads what the kernel tells about the machine, its processes,
// control groups, network namespaces and its own log.
//
// In: files of procfs, sysfs and the cgroup file systems, sock_diag and
// ctnetlink over netlink sockets, and the kernel log device. One source file of
// this package reads one kernel source and is named like it. The roots of
// procfs and sysfs are fields of FS, so that tests run the same code on
// recorded fixtures.
//
// Out: samples (raw readings) and, from a pair of samples, the types of package
// observe. What could not be read comes back as an observe.Gap or an error
// next to everything that could.
//
// The package never concludes, never writes, never loads a kernel module, and
// never lets a thread that entered another network namespace go back to the Go
// scheduler. No input makes it panic: unknown columns are skipped, a process
// that vanishes while it is read is kept with what was seen, or left out.
package host
