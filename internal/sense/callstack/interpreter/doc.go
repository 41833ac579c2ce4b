// Package interpreter unwinds user stacks with the frames of interpreters:
// Python, Java, PHP, Node, Ruby and others, between the native frames that run
// them, without frame pointers, an agent or a restart.
//
// In: OpenTelemetry's eBPF profiler, a library of which this package is the
// only user, because its API is not stable; it reads the memory of the
// processes. Out: a BPF program that unwinds the current thread, and the stacks
// that it found, as locations of internal/sense/symbol. When to unwind is not
// its business.
package interpreter
