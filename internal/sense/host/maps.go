package host

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/slowray/slowray/internal/budget"
)

// MapCount is how many memory mappings a process has: the lines of
// /proc/PID/maps. Reading it holds up the process when it maps or unmaps
// memory meanwhile, so it is for processes that are known to be in trouble. An
// error of the budget means that there are more than were counted.
func (fs FS) MapCount(b *budget.Budget, pid int) (int, error) {
	f, err := os.Open(fmt.Sprintf("%s/%d/maps", fs.Proc, pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	for n := 0; ; {
		k, err := f.Read(buf)
		n += bytes.Count(buf[:k], []byte("\n"))
		if err == io.EOF {
			return n, nil
		}
		if err == nil {
			err = b.Read(int64(k))
		}
		if err != nil {
			return n, err
		}
	}
}

// Tracer is the process that traces another one with ptrace(2), 0 when none
// does (TracerPid of proc_pid_status(5)).
func (fs FS) Tracer(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/status", fs.Proc, pid))
	if err != nil {
		return 0
	}
	v, _ := AfterKey(b, "TracerPid:")
	f, _ := nextField(v)
	n, _ := ParseSmall(f)
	return n
}
