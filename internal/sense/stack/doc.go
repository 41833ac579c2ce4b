// Package stack samples what the CPUs execute.
//
// In: the BPF program profile.bpf.c on the software CPU clock, and the
// kernel's symbol table. Out: observe.Profile, samples per process with those
// counted apart that pass through kernel functions a cause asks for. It never
// concludes.
package stack
