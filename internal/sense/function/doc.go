// Package function counts and times the calls of any function: of a binary or
// a library, a static probe (USDT), a tracepoint, a system call, or, where the
// kernel has kprobes, a function of the kernel.
//
// In: a target (a process, a file, or the kernel), names with wildcards, and
// ELF files, /proc and tracefs to find them in. Out: observe.Functions.
//
// The places that are watched are breakpoints in memory (uprobes), which the
// kernel sets and takes back: no file is changed, and all of them hang on
// descriptors of this process, so that they are gone when it is, however it
// ends. Functions of Go programs never get a return probe, which would put a
// foreign address on a stack that Go walks and moves: their return
// instructions are found by disassembly and watched themselves. A bound on the
// rate of hits protects who is watched.
package function
