package host

import (
	"io"

	"github.com/slowray/slowray/internal/observe"
)

// parseSoftnet reads /proc/net/softnet_stat (softnet_seq_show,
// net/core/net-procfs.c): one line per online CPU, hexadecimal columns of 32
// bits. Column 0 is packets processed, 1 dropped, 2 squeezed, and since Linux
// 5.14 column 12 the CPU number; before, lines are taken to be numbered from 0.
func parseSoftnet(r io.Reader) ([]observe.Softnet, error) {
	b, err := io.ReadAll(io.LimitReader(r, 4<<20))
	var out []observe.Softnet
	for len(b) > 0 && len(out) < maxCPUs {
		var line []byte
		line, b = nextLine(b)
		var v [13]uint64
		n := 0
		for n < len(v) {
			var f []byte
			f, line = nextField(line)
			x, ok := ParseHex(f)
			if !ok {
				break
			}
			v[n] = x
			n++
		}
		if n < 3 {
			continue
		}
		s := observe.Softnet{CPU: len(out), Processed: v[0], Dropped: v[1], Squeezed: v[2]}
		if n > 12 && v[12] < maxCPUs {
			s.CPU = int(v[12])
		}
		out = append(out, s)
	}
	return out, err
}

// softnetBetween keeps the CPUs that were online at both ends.
func softnetBetween(a, b []observe.Softnet) []observe.Softnet {
	before := make(map[int]observe.Softnet, len(a))
	for _, s := range a {
		before[s.CPU] = s
	}
	var out []observe.Softnet
	for _, s := range b {
		p, ok := before[s.CPU]
		if !ok {
			continue
		}
		out = append(out, observe.Softnet{
			CPU:       s.CPU,
			Processed: grown32(p.Processed, s.Processed),
			Dropped:   grown32(p.Dropped, s.Dropped),
			Squeezed:  grown32(p.Squeezed, s.Squeezed),
		})
	}
	return out
}
