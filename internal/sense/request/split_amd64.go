package request

import "golang.org/x/sys/unix"

// oldCalls are system calls that newer architectures do not have.
var oldCalls = map[uint8][]int{
	callDisk:  {unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_GETDENTS},
	callNet:   {unix.SYS_POLL, unix.SYS_SELECT},
	callSleep: {unix.SYS_PAUSE},
}
