package host

import (
	"bytes"
	"io"

	"github.com/slowray/slowray/internal/observe"
)

// pressureSample is the total stall time since boot, in microseconds.
type pressureSample struct{ some, full uint64 }

// parsePressure reads a pressure file: /proc/pressure/cpu, memory, io, or
// memory.pressure of a control group (Documentation/accounting/psi.rst).
func parsePressure(r io.Reader) (pressureSample, error) {
	b, err := io.ReadAll(io.LimitReader(r, 64<<10))
	var p pressureSample
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		which, rest := nextField(line)
		for len(rest) > 0 {
			var f []byte
			f, rest = nextField(rest)
			v, ok := bytes.CutPrefix(f, []byte("total="))
			if !ok {
				continue
			}
			us, _ := ParseUint(v)
			switch string(which) {
			case "some":
				p.some = us
			case "full":
				p.full = us
			}
		}
	}
	return p, err
}

func pressureBetween(a, b pressureSample) observe.Pressure {
	return observe.Pressure{
		SomeSeconds: float64(grown(a.some, b.some)) / 1e6,
		FullSeconds: float64(grown(a.full, b.full)) / 1e6,
	}
}
