package change

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func parseNice(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < -20 || n > 19 {
		return 0, fmt.Errorf("%q is not a nice value", s)
	}
	return n, nil
}

// niceOf reads the nice value of a thread. The system call gives 20 less it, so
// that it is never negative (getpriority(2)).
func niceOf(tid int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - n, err
}

func setNice(tid, nice int) error { return unix.Setpriority(unix.PRIO_PROCESS, tid, nice) }

// someCPUOnline says no to CPUs that are not there.
func someCPUOnline(list string) error {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil // the kernel will say
	}
	online, err1 := parseCPUs(string(b))
	want, err2 := parseCPUs(list)
	if err1 != nil || err2 != nil {
		return errors.Join(err1, err2)
	}
	for i := range maxCPU {
		if want.IsSet(i) && !online.IsSet(i) {
			return fmt.Errorf("there is no CPU %d: online are %s", i, cpuList(online))
		}
	}
	return nil
}
