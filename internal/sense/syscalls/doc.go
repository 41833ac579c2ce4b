// Package syscalls knows the numbers of system calls.
//
// In: the name of an architecture (GOARCH). Out: its system calls, by name and
// by number. The table is made from the constants of golang.org/x/sys/unix,
// which come from the kernel's headers (asm/unistd.h); it has all architectures,
// for a saved stack or a test may be of another one than this machine.
package syscalls
