// Package connect observes what becomes of connect() and accept() calls on
// the whole host: results and time per process and address, and how the TCP
// handshakes ended.
//
// In: the BPF program connect.bpf.c. Out: observe.Connect, observe.Accept and
// the handshakes completed per listener. It never concludes, and it never
// wakes per event: the maps are read once.
package connect
