// Package rootfs opens files as a process with another root directory or
// mount namespace sees them.
//
// In: a root directory on the host ("/", "/proc/PID/root") and paths as they
// are written in that process's configuration. Out: open regular files, their
// text, directory listings, and the real place behind symbolic links.
//
// It never leaves the root: ".." stops at it and absolute symbolic links start
// at it (openat2(2) RESOLVE_IN_ROOT, or a walk of its own where the kernel or
// a seccomp filter does not allow openat2). It never opens a FIFO, a socket or
// a device for reading, so it never blocks on one and never disturbs one, and
// it never writes.
package rootfs
