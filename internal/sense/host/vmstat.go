package host

import (
	"io"
	"strings"
)

// parseVmstat reads the counters of /proc/vmstat (mm/vmstat.c). Gauges are left
// out: names that start with "nr_" but the two that count pages since boot.
func parseVmstat(r io.Reader) (map[string]uint64, error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	m := make(map[string]uint64, 128)
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		key, rest := nextField(line)
		f, _ := nextField(rest)
		if v, ok := ParseUint(f); ok && vmCounter(string(key)) {
			m[string(key)] = v
		}
	}
	return m, err
}

func vmCounter(name string) bool {
	return name == "nr_dirtied" || name == "nr_written" || !strings.HasPrefix(name, "nr_")
}

// vmBetween keeps the counters that rose.
func vmBetween(a, b map[string]uint64) map[string]uint64 {
	out := make(map[string]uint64)
	for k, v := range b {
		if old, ok := a[k]; ok && v > old {
			out[k] = v - old
		}
	}
	return out
}
