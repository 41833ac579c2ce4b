package change

import (
	"math"
	"os"
	"strconv"
	"strings"
)

// Formats of control group files (Documentation/admin-guide/cgroup-v2.rst,
// "Format"): one value; fields of which the last may be left out when writing
// ("max 100000"); or a line for each device, written one at a time.

// keyed says whether a file has a line for each device.
func keyed(file string) bool {
	switch file {
	case "io.max", "io.latency", "io.weight":
		return true
	}
	return strings.HasPrefix(file, "blkio.throttle.")
}

// lines are a keyed file's, by device.
func lines(text string) (order []string, rest map[string]string) {
	rest = map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "" {
			continue
		}
		if _, twice := rest[key]; !twice {
			order = append(order, key)
		}
		rest[key] = strings.TrimSpace(value)
	}
	return order, rest
}

// backTo is what has to be written, one call each, to get from now to old.
func backTo(file, old, now string) []string {
	if !keyed(file) {
		return []string{strings.TrimSpace(old)}
	}
	var out []string
	had, values := lines(old)
	have, _ := lines(now)
	for _, key := range have {
		if _, ok := values[key]; ok {
			continue
		}
		none := "0" // blkio.throttle: no limit
		switch file {
		case "io.max":
			none = "rbps=max wbps=max riops=max wiops=max"
		case "io.latency":
			none = "target=0"
		case "io.weight":
			none = "default"
		}
		out = append(out, key+" "+none)
	}
	for _, key := range had {
		out = append(out, key+" "+values[key])
	}
	return out
}

// groupFileHolds says whether a file reads as it does after value was written.
func groupFileHolds(file, now, value string) bool {
	switch {
	case keyed(file):
		return keyedHolds(now, value)
	case file == "cpuset.cpus":
		a, err1 := parseCPUs(now)
		b, err2 := parseCPUs(value)
		return err1 == nil && err2 == nil && a == b
	case strings.HasPrefix(file, "memory.") && file != "memory.swappiness":
		a, err1 := memoryBytes(now)
		b, err2 := memoryBytes(value)
		return err1 == nil && err2 == nil && a == b
	}
	have, want := strings.Fields(now), strings.Fields(value)
	if len(want) == 0 || len(want) > len(have) {
		return false
	}
	for i := range want {
		if have[i] != want[i] {
			return false
		}
	}
	return true
}

func keyedHolds(now, value string) bool {
	_, have := lines(now)
	order, want := lines(value)
	for _, key := range order {
		fields := strings.Fields(have[key])
		for _, f := range strings.Fields(want[key]) {
			none := f == "0" || strings.HasSuffix(f, "=max")
			found := len(fields) == 0 && none
			for _, h := range fields {
				found = found || h == f
			}
			if !found {
				return false
			}
		}
	}
	return len(order) > 0
}

// memoryBytes reads a limit as the kernel keeps it: whole pages, and no more
// than it can count (page_counter_memparse).
func memoryBytes(s string) (uint64, error) {
	s = strings.TrimSpace(s)
	page := uint64(os.Getpagesize())
	most := math.MaxInt64 / page * page
	if s == "max" || s == "-1" {
		return most, nil
	}
	shift := 0
	if i := strings.IndexAny(s, "kKmMgGtT"); i >= 0 && i == len(s)-1 {
		shift = 10 * (1 + strings.IndexByte("kmgt", s[i]|0x20))
		s = s[:i]
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, err
	}
	if n > most>>shift {
		return most, nil
	}
	return n << shift / page * page, nil
}
