// Package symbol gives addresses names.
//
// In: addresses in the memory of processes and of the kernel; /proc/PID/maps,
// the binaries that are mapped there, as their process sees them, the kernel's
// symbol table and the maps that just-in-time compilers write
// (/tmp/perf-PID.map). Out: observe.Frame. Processes and binaries are taken
// hold of when an address is first seen, and read when all addresses are known:
// a process that ended meanwhile keeps its names.
//
// What is read belongs to others and may be damaged or hostile: nothing in it
// can do more harm than a name that is missing.
package symbol
