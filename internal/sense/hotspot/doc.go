// Package hotspot reads from the memory of a running Java virtual machine
// (HotSpot, of OpenJDK 11 to 23) which threads wait for a monitor, and who has
// entered it; or for a lock of java.util.concurrent, and who holds it. Monitors are
// the locks of synchronized.
//
// In: libjvm.so of the process, whose table vmStructs tells where the fields of
// the machine's own structures are (it is there for the serviceability agent,
// which debuggers are made of), and the process's memory, by
// process_vm_readv(2) alone. Nothing is stopped, attached to or changed, and no
// safepoint is asked for.
//
// Locks of java.util.concurrent are Java objects, which the garbage collector
// moves: what is read of one while it moves does not fit, and is not told.
package hotspot
