package host

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// groupLimits is what a group may have besides CPU time and memory, and what
// its limits cost it: totals since it was made.
type groupLimits struct {
	MemoryHighBytes uint64 // v2; 0 = none
	MemoryAtHigh    uint64
	MemoryFileBytes uint64
	Refaults        uint64
	CPUWeight       int // as in cpu.weight; 0 = not known
	Tasks           uint64
	PIDsLimit       uint64 // 0 = none
	PIDsRefused     uint64
	IO              []observe.IOLimit // counters are totals

	memoryFile, highFile, pidsFile, weightFile string

	gone bool // the group is no more
}

// defaultWeight is the cpu.weight of a group that nobody set one for
// (Documentation/admin-guide/cgroup-v2.rst).
const defaultWeight = 100

// weightOfShares turns cpu.shares, 1024 by default, into a weight.
func weightOfShares(b []byte) int {
	shares, ok := ParseUint(bytes.TrimSpace(b))
	if !ok || shares == 0 || shares > 1<<18 {
		return 0
	}
	return max(int(shares*defaultWeight/1024), 1)
}

// readV2Limits reads the limits of a group of the unified hierarchy that few
// groups have; the figures next to them only where there is a limit.
func (s *cgroupScan) readV2Limits(dir string, g *CgroupSample) {
	if b, ok := s.file(dir, "cpu.weight"); ok {
		g.CPUWeight, _ = ParseSmall(bytes.TrimSpace(b))
		g.weightFile = filepath.Join(dir, "cpu.weight")
	}
	if b, ok := s.file(dir, "memory.high"); ok {
		g.MemoryHighBytes = s.limit(b)
		g.highFile = filepath.Join(dir, "memory.high")
	}
	if g.MemoryHighBytes > 0 || g.MemoryLimitBytes > 0 {
		if b, ok := s.ownEvents(dir); ok {
			g.MemoryAtHigh = flatKey(b, "high")
		}
		s.memoryStat(dir, g, "file", "workingset_refault_file")
	}
	s.readPIDs(dir, g)
	s.readIOMax(dir, g)
}

// memoryStat reads the page cache of a group and what of it was read twice.
func (s *cgroupScan) memoryStat(dir string, g *CgroupSample, cache, refaults string) {
	if b, ok := s.file(dir, "memory.stat"); ok {
		g.MemoryFileBytes, g.Refaults = flatKey(b, cache), flatKey(b, refaults)
	}
}

// readPIDs reads the limit of tasks (Documentation/admin-guide/cgroup-v1/pids.rst;
// the files are the same in both versions).
func (s *cgroupScan) readPIDs(dir string, g *CgroupSample) {
	b, ok := s.file(dir, "pids.max")
	if !ok {
		return
	}
	if g.PIDsLimit, ok = ParseUint(bytes.TrimSpace(b)); !ok {
		return // "max"
	}
	g.pidsFile = filepath.Join(dir, "pids.max")
	if b, ok := s.file(dir, "pids.current"); ok {
		g.Tasks, _ = ParseUint(bytes.TrimSpace(b))
	}
	if b, ok := s.file(dir, "pids.events"); ok {
		g.PIDsRefused = flatKey(b, "max")
	}
}

// readIOMax reads io.max, lines of "MAJOR:MINOR rbps=… wbps=… riops=… wiops=…"
// with "max" for none, and what io.stat says of the same devices.
func (s *cgroupScan) readIOMax(dir string, g *CgroupSample) {
	b, ok := s.file(dir, "io.max")
	if !ok || len(bytes.TrimSpace(b)) == 0 {
		return
	}
	stat, _ := s.file(dir, "io.stat")
	file := filepath.Join(dir, "io.max")
	for line := range bytes.Lines(b) {
		number, values := nextField(bytes.TrimSpace(line))
		l := observe.IOLimit{Disk: string(number), File: file,
			ReadBPS: keyNumber(values, "rbps"), WriteBPS: keyNumber(values, "wbps"), ReadIOPS: keyNumber(values, "riops"), WriteIOPS: keyNumber(values, "wiops")}
		if !deviceNumber(number) || l.ReadBPS+l.WriteBPS+l.ReadIOPS+l.WriteIOPS == 0 {
			continue
		}
		if done, ok := AfterKey(stat, l.Disk+" "); ok {
			l.ReadBytes, l.WriteBytes = uint64(keyNumber(done, "rbytes")), uint64(keyNumber(done, "wbytes"))
			l.Reads, l.Writes = uint64(keyNumber(done, "rios")), uint64(keyNumber(done, "wios"))
		}
		s.addIO(g, l)
	}
}

// readV1BlkIO reads the throttle of the v1 controller blkio
// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
func (s *cgroupScan) readV1BlkIO(dir string, g *CgroupSample) {
	limits := map[string]*observe.IOLimit{}
	var order []string
	for _, f := range []struct {
		name string
		set  func(*observe.IOLimit, float64)
	}{
		{"blkio.throttle.read_bps_device", func(l *observe.IOLimit, v float64) { l.ReadBPS = v }},
		{"blkio.throttle.write_bps_device", func(l *observe.IOLimit, v float64) { l.WriteBPS = v }},
		{"blkio.throttle.read_iops_device", func(l *observe.IOLimit, v float64) { l.ReadIOPS = v }},
		{"blkio.throttle.write_iops_device", func(l *observe.IOLimit, v float64) { l.WriteIOPS = v }},
	} {
		b, _ := s.file(dir, f.name)
		for line := range bytes.Lines(b) {
			number, value := nextField(bytes.TrimSpace(line))
			n, ok := ParseUint(bytes.TrimSpace(value))
			if !ok || n == 0 || !deviceNumber(number) {
				continue
			}
			l := limits[string(number)]
			if l == nil {
				l = &observe.IOLimit{Disk: string(number), File: filepath.Join(dir, f.name)}
				limits[l.Disk] = l
				order = append(order, l.Disk)
			}
			f.set(l, float64(n))
		}
	}
	if len(limits) == 0 {
		return
	}
	count, _ := s.file(dir, "blkio.throttle.io_serviced")
	size, _ := s.file(dir, "blkio.throttle.io_service_bytes")
	for _, number := range order {
		l := limits[number]
		l.Reads, l.Writes = flatKey(count, number+" Read"), flatKey(count, number+" Write")
		l.ReadBytes, l.WriteBytes = flatKey(size, number+" Read"), flatKey(size, number+" Write")
		s.addIO(g, *l)
	}
}

// maxIOLimits bounds the disks of one group.
const maxIOLimits = 32

func (s *cgroupScan) addIO(g *CgroupSample, l observe.IOLimit) {
	if len(g.IO) >= maxIOLimits {
		return
	}
	l.Number = l.Disk
	// /sys/dev/block/MAJOR:MINOR is a link to the device's directory.
	if to, err := os.Readlink(filepath.Join(s.fs.Sys, "dev/block", l.Disk)); err == nil {
		l.Disk = printable.Name([]byte(filepath.Base(to)), 64)
	}
	g.IO = append(g.IO, l)
}

// deviceNumber says whether b is MAJOR:MINOR.
func deviceNumber(b []byte) bool {
	major, minor, ok := bytes.Cut(b, []byte(":"))
	_, ok1 := ParseSmall(major)
	_, ok2 := ParseSmall(minor)
	return ok && ok1 && ok2
}

// keyNumber is the value of "key=" in a line of such pairs, 0 for "max".
func keyNumber(line []byte, key string) float64 {
	for f := range bytes.FieldsSeq(line) {
		if v, ok := bytes.CutPrefix(f, []byte(key+"=")); ok {
			n, _ := ParseUint(v)
			return float64(n)
		}
	}
	return 0
}

// ioBetween is what a group did on its limited disks from a to b.
func ioBetween(a, b []observe.IOLimit) []observe.IOLimit {
	out := slices.Clone(b)
	for i := range out {
		l := &out[i]
		for j := range a {
			if a[j].Disk == l.Disk {
				l.ReadBytes, l.WriteBytes = restarted(a[j].ReadBytes, l.ReadBytes), restarted(a[j].WriteBytes, l.WriteBytes)
				l.Reads, l.Writes = restarted(a[j].Reads, l.Reads), restarted(a[j].Writes, l.Writes)
			}
		}
	}
	return out
}

// groupSource is a directory that a group was read from, and how.
type groupSource struct {
	dir  string
	read groupRead
}

// Limited says that a group has a limit worth looking at again.
func (g *CgroupSample) Limited() bool {
	return g.QuotaNS > 0 || g.MemoryLimitBytes > 0 || g.MemoryHighBytes > 0 || g.PIDsLimit > 0 || len(g.IO) > 0
}

// CgroupsAgain reads the groups with a limit among was once more, without
// looking for them anew: what is known of a group that is removed is then not
// older than this. Groups that are gone are left out.
func (fs FS) CgroupsAgain(was []CgroupSample) []CgroupSample {
	s := cgroupScan{fs: fs, hostMemory: fs.totalMemory()}
	defer s.end()
	var out []CgroupSample
	for i := range was {
		old := &was[i]
		if !old.Limited() || len(old.from) == 0 {
			continue
		}
		g := CgroupSample{Path: old.Path, Version: old.Version, PIDs: old.PIDs, from: old.from, taken: old.taken, oldest: old.oldest}
		there := false
		for _, f := range old.from {
			f.read(&s, f.dir, &g)
			there = there || s.dir == f.dir && s.fd >= 0
		}
		// A group whose files went while they were read has lost its limits.
		if there && g.Limited() {
			out = append(out, g)
		}
	}
	return out
}

// withVanished adds to b the groups of last that are not in it.
func withVanished(b, last []CgroupSample) []CgroupSample {
	if len(last) == 0 {
		return b
	}
	known := make(map[groupKey]bool, len(b))
	for i := range b {
		known[groupKey{b[i].Path, b[i].Version}] = true
	}
	out := slices.Clone(b)
	for i := range last {
		if g := last[i]; !known[groupKey{g.Path, g.Version}] {
			g.gone = true
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b CgroupSample) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return a.Version - b.Version
	})
	return out
}

// CPUSetOf is the file of the nearest control group that keeps a process from
// CPUs the host has, empty when none does: cpuset.cpus, of version 2 or 1.
func (fs FS) CPUSetOf(groups *ProcGroups, online int) string {
	if groups == nil {
		return ""
	}
	s := cgroupScan{fs: fs}
	defer s.end()
	if fs.parse("self/mountinfo", func(r io.Reader) (err error) { s.mounts, err = parseMountinfo(r); return }) != nil {
		return ""
	}
	s.moveMounts()
	for _, h := range []struct {
		mounts []cgroupMount
		path   string
	}{{s.mounts.v2, groups.V2}, {s.mounts.cpuset, groups.CPUSet}} {
		for _, d := range lineage(h.mounts, h.path) {
			b, ok := s.file(d.dir, "cpuset.cpus")
			if n := countList(bytes.TrimSpace(b)); ok && n > 0 && n < online {
				return filepath.Join(d.dir, "cpuset.cpus")
			}
		}
	}
	return ""
}
