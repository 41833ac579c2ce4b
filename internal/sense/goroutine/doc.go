// Package goroutine reads the goroutines of a running Go program: which of them
// wait, for what, since when, and where in the program.
//
// In: the program's file (build information, the table of functions that every
// Go binary has, stripped or not), and the memory of its process, by
// process_vm_readv(2) alone. Nothing is stopped, attached to or changed.
//
// Out: goroutines with their stacks. No reading is of one moment: what changed
// while it was read is left out, or is reported by its last state.
//
// program.go finds the runtime's tables, layout.go knows where the fields of its
// structures are, in each version of Go, functions.go names program counters,
// read.go reads goroutines, stack.go walks their stacks, and waiting.go tells
// from these what a goroutine waits for.
//
// Bounds: 65,536 goroutines are listed, 64 frames of a stack, 32 MB of a
// program's variables are searched for the runtime's own.
package goroutine
