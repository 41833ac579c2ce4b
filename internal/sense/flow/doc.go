// Package flow tells what the packets are that come in, when they take a good
// part of a CPU.
//
// In: the BPF program flow.bpf.c, which looks at one of sixteen packets for some
// moments. Out: observe.Flow, packets by namespace, interface, protocol, port
// and source. It never concludes, and never looks into a payload.
package flow
