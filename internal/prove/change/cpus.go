package change

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCPU is the highest CPU number that fits an affinity mask of ours.
const maxCPU = len(unix.CPUSet{}) * 64

// parseCPUs reads a list of CPUs as taskset(1) takes it, and as the kernel
// writes it: "0-3,8", with a step "0-30:2".
func parseCPUs(list string) (unix.CPUSet, error) {
	var set unix.CPUSet
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		span, step, stepped := strings.Cut(part, ":")
		from, to, ranged := strings.Cut(span, "-")
		if !ranged {
			to = from
		}
		if !stepped {
			step = "1"
		}
		a, err1 := strconv.Atoi(strings.TrimSpace(from))
		b, err2 := strconv.Atoi(strings.TrimSpace(to))
		n, err3 := strconv.Atoi(step)
		if err1 != nil || err2 != nil || err3 != nil || a < 0 || b < a || b >= maxCPU || n < 1 {
			return set, fmt.Errorf("%q is not a list of CPUs", list)
		}
		for n = min(n, maxCPU); a <= b; a += n {
			set.Set(a)
		}
	}
	return set, nil
}

// cpuList writes a set as "0-3,8".
func cpuList(set unix.CPUSet) string {
	var parts []string
	for i := 0; i < maxCPU; i++ {
		if !set.IsSet(i) {
			continue
		}
		from := i
		for i+1 < maxCPU && set.IsSet(i+1) {
			i++
		}
		if from == i {
			parts = append(parts, fmt.Sprint(i))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, i))
		}
	}
	return strings.Join(parts, ",")
}
