// Package stack samples what the CPUs execute.
//
// In: the BPF program profile.bpf.c on the software CPU clock, names for
// addresses from internal/sense/symbol, and call stacks that were recorded more
// closely. Out: observe.Profile, samples per process and thread, with the
// functions of those that are asked for. It never concludes.
package stack
