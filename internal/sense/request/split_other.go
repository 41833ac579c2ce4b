//go:build !amd64

package request

// oldCalls are system calls that newer architectures do not have.
var oldCalls map[uint8][]int
