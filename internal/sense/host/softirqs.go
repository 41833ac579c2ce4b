package host

import (
	"bytes"
	"io"

	"github.com/slowray/slowray/internal/printable"
)

// parseSoftIRQs reads /proc/softirqs (fs/proc/softirqs.c): a line of CPU names,
// then a line for each vector with how often it ran on each possible CPU since
// boot. The result is by vector and CPU number.
func parseSoftIRQs(r io.Reader) (map[string][]uint64, error) {
	b, err := io.ReadAll(io.LimitReader(r, 4<<20))
	header, b := nextLine(b)
	var cpus []int
	for {
		var f []byte
		f, header = nextField(header)
		number, ok := bytes.CutPrefix(f, []byte("CPU"))
		n, number2 := ParseSmall(number)
		if !ok || !number2 || n >= maxCPUs {
			break
		}
		cpus = append(cpus, n)
	}
	m := map[string][]uint64{}
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		name, rest := nextField(line)
		name, ok := bytes.CutSuffix(name, []byte(":"))
		if !ok || len(name) == 0 {
			continue
		}
		counts := make([]uint64, 0, len(cpus))
		for _, cpu := range cpus {
			var f []byte
			f, rest = nextField(rest)
			n, ok := ParseUint(f)
			if !ok {
				break
			}
			for len(counts) <= cpu {
				counts = append(counts, 0)
			}
			counts[cpu] = n
		}
		m[printable.Name(name, 32)] = counts
	}
	return m, err
}

// softIRQsBetween keeps the vectors that ran. The counts have 32 bits.
func softIRQsBetween(a, b map[string][]uint64) map[string][]uint64 {
	var out map[string][]uint64
	for name, now := range b {
		was := a[name]
		if len(was) != len(now) {
			continue
		}
		more := make([]uint64, len(now))
		ran := false
		for cpu := range now {
			more[cpu] = grown32(was[cpu], now[cpu])
			ran = ran || more[cpu] > 0
		}
		if ran {
			if out == nil {
				out = make(map[string][]uint64, len(b))
			}
			out[name] = more
		}
	}
	return out
}
