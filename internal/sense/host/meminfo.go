package host

import (
	"io"

	"github.com/slowray/slowray/internal/observe"
)

// parseMeminfo reads /proc/meminfo (proc_meminfo(5)), whose figures are in
// units of 1024 bytes.
func parseMeminfo(r io.Reader) (observe.Memory, error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	var m observe.Memory
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		key, rest := nextField(line)
		f, _ := nextField(rest)
		kb, ok := ParseUint(f)
		if !ok || kb > 1<<53 {
			continue
		}
		switch string(key) {
		case "MemTotal:":
			m.TotalBytes = kb << 10
		case "MemAvailable:":
			m.AvailableBytes = kb << 10
		case "SwapTotal:":
			m.SwapTotalBytes = kb << 10
		case "SwapFree:":
			m.SwapFreeBytes = kb << 10
		case "Dirty:":
			m.DirtyBytes = kb << 10
		case "Writeback:":
			m.WritebackBytes = kb << 10
		case "Slab:":
			m.SlabBytes = kb << 10
		case "SUnreclaim:":
			m.SlabKeptBytes = kb << 10
		case "CommitLimit:":
			m.CommitLimit = kb << 10
		case "Committed_AS:":
			m.Committed = kb << 10
		}
	}
	return m, err
}
