// Package bpf holds slowray's kernel side: the BPF programs (*.bpf.c), the
// objects compiled from them (committed, so that building slowray needs no
// clang) and the one loader.
//
// In: nothing. Out: loaded programs and maps for the readers in
// internal/sense, which attach them and give the maps a meaning. It never
// interprets what the maps hold.
//
// Programs are tracepoints, BTF tracepoints and perf events only: no kprobe
// and no fentry, which many kernels and sandboxes refuse. `make generate`
// compiles the programs again; the result must not differ.
package bpf
