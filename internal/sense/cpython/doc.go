// Package cpython reads from the memory of a running Python interpreter (CPython
// 3.11 to 3.13) where in the program each of its threads is.
//
// In: the interpreter's file, for the address of _PyRuntime, and the process's
// memory, by process_vm_readv(2) alone. Nothing is stopped, attached to or
// changed. A thread that runs changes its stack while it is read: only of those
// that wait is a stack sure.
package cpython
