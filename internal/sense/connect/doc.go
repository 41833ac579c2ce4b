// Package connect observes what becomes of connect() and accept() calls on
// the whole host: results per process and address, and how the TCP handshakes
// ended. Calls of connect() to unix sockets and of accept() are watched only
// when and while they are asked for, because that makes all system calls more expensive.
//
// In: the BPF program connect.bpf.c. Out: observe.Connect, observe.Accept and
// the handshakes completed per listener. It never concludes, and it never
// wakes per event: the maps are read once.
package connect
