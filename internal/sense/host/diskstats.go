package host

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// sectorBytes is the unit of /proc/diskstats, whatever the device's own is.
const sectorBytes = 512

// diskSample is one line of /proc/diskstats: the columns after the name, in
// the order of Documentation/admin-guide/iostats.rst.
type diskSample struct {
	name    string
	number  string // "major:minor"
	columns [11]uint64
}

// Columns of a diskSample. Times are milliseconds that the kernel prints from
// 32 bits.
const (
	diskReads = iota
	_
	diskReadSectors
	diskReadMS
	diskWrites
	_
	diskWriteSectors
	diskWriteMS
	_
	diskBusyMS
)

// parseDiskstats reads /proc/diskstats. Columns beyond those known (discards
// since 4.18, flushes since 5.5) are skipped.
func parseDiskstats(r io.Reader) ([]diskSample, error) {
	b, err := io.ReadAll(io.LimitReader(r, 4<<20))
	var out []diskSample
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		major, line := nextField(line)
		minor, line := nextField(line)
		name, line := nextField(line)
		d := diskSample{name: printable.Name(name, 64), number: printable.Name(major, 8) + ":" + printable.Name(minor, 8)}
		n := 0
		for n < len(d.columns) {
			var f []byte
			f, line = nextField(line)
			v, ok := ParseUint(f)
			if !ok {
				break
			}
			d.columns[n] = v
			n++
		}
		if n > diskBusyMS {
			out = append(out, d)
		}
	}
	return out, err
}

// wholeDisks drops partitions: what /sys/block does not list. Where that
// directory cannot be read, a name that is another disk's name, perhaps "p",
// and digits is a partition.
func (fs FS) wholeDisks(all []diskSample) []diskSample {
	blocks := make(map[string]bool)
	if entries, err := os.ReadDir(filepath.Join(fs.Sys, "block")); err == nil {
		for _, e := range entries {
			blocks[strings.ReplaceAll(e.Name(), "!", "/")] = true
		}
	} else {
		for _, d := range all {
			blocks[d.name] = true
		}
		for _, d := range all {
			stem := strings.TrimRight(d.name, "0123456789")
			if stem != d.name && (blocks[stem] || blocks[strings.TrimSuffix(stem, "p")]) {
				delete(blocks, d.name)
			}
		}
	}
	var whole []diskSample
	for _, d := range all {
		if blocks[d.name] {
			whole = append(whole, d)
		}
	}
	return whole
}

// disksBetween keeps the disks that were there at both ends and have ever done
// any I/O.
func disksBetween(a, b []diskSample) []observe.Disk {
	before := make(map[string]diskSample, len(a))
	for _, d := range a {
		before[d.name] = d
	}
	var out []observe.Disk
	for _, d := range b {
		p, ok := before[d.name]
		if !ok || d.columns[diskReads]+d.columns[diskWrites] == 0 {
			continue
		}
		count := func(i int) uint64 { return grown(p.columns[i], d.columns[i]) }
		seconds := func(i int) float64 { return float64(grown32(p.columns[i], d.columns[i])) / 1000 }
		out = append(out, observe.Disk{
			Name:         d.name,
			Number:       d.number,
			Reads:        count(diskReads),
			Writes:       count(diskWrites),
			ReadBytes:    count(diskReadSectors) * sectorBytes,
			WriteBytes:   count(diskWriteSectors) * sectorBytes,
			ReadSeconds:  seconds(diskReadMS),
			WriteSeconds: seconds(diskWriteMS),
			BusySeconds:  seconds(diskBusyMS),
		})
	}
	return out
}
