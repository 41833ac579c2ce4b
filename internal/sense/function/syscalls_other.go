//go:build !amd64 && !arm64

package function

// syscallNumbers is empty: on this machine system calls are not known by name.
var syscallNumbers map[string]uint32
