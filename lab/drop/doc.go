// Package drop loses packets as a network card's driver would: a BPF program
// at the clsact ingress of a device throws them away before IP sees them.
//
// In: a network namespace, a device and a [Rule]. Out: a [Dropper] that counts
// what it saw and what it lost; that is the truth of an incident. Every n-th
// packet is exact; a share of a million is by chance. It goes with the
// namespace. On the way in, not out: a loss on the way out is asked to the
// local sender, which then knows.
//
// Segments that the kernel carries in one piece through a veth pair count, and
// get lost, as one: [NoOffload] makes each a packet of its own.
package drop

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -go-package drop -output-stem drop_bpf object drop.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
