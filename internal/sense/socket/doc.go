// Package socket lists all TCP sockets of a network namespace, and the owners
// of every socket of the host, through BPF iterators: ten times cheaper than
// sock_diag and /proc/PID/fd, which package host reads where BPF is not to be
// had.
//
// In: the BPF program socket.bpf.c. Out: host.SocketSample, and socket inodes
// with their processes. It never concludes.
package socket
