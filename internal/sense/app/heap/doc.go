// Package heap tells how large the heap of a language runtime may grow: the
// Java virtual machine (HotSpot) and node.
//
// In: processes, by their command line, environment and the counters that a JVM
// publishes in /tmp/hsperfdata_USER/PID. Out: observe.Heap. Of command lines
// and environments only the options that size a heap or choose a collector are
// kept. It never attaches to a JVM, never writes, and never blocks on what lies
// in a container's file system.
package heap
