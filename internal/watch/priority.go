package watch

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownNice is the nice value slowray runs at: a verdict is wanted most on a
// machine whose CPUs are taken, and slowray uses about one percent of one.
const ownNice = -10

// RaisePriority gives slowray's own threads precedence. A nice value belongs to a
// thread (setpriority(2)); those born later inherit it. Without the right to
// (CAP_SYS_NICE) slowray just waits its turn.
func RaisePriority() {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, ownNice)
		}
	}
}
