// Package doctor says what slowray can do on this host: with this kernel, these
// rights, from in here.
//
// In: the host. Everything is tried for real, each BPF object loaded and
// attached, and a window watched as `slowray why` does; nothing goes by version
// numbers. Out: a Checkup: what works, what does not and why, which commands and
// which causes are lost by that, what the programs cost, and what other slowrays that run
// here take.
package doctor
