// Package callstack records what threads do, by call stack: on the CPU, and
// while they wait.
//
// In: the BPF programs of internal/bpf/stacks.bpf.c, and names for addresses
// from internal/sense/symbol. Out: observe.Stacks over a window. User stacks
// are followed by frame pointers: a program without them gives short ones, and
// that is reported. It never concludes.
package callstack
