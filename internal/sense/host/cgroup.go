package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// CgroupSample is one control group at one moment. Counters are totals since
// the group was made.
type CgroupSample struct {
	Path    string
	Version int   // 1 or 2; a v1 group is merged over its controllers
	PIDs    []int // processes of interest in it or below it

	QuotaNS   int64  // CPU time allowed in each period; 0 = no quota
	PeriodNS  int64  //
	QuotaFile string // full path

	Periods     uint64
	Throttled   uint64
	ThrottledNS uint64

	MemoryLimitBytes uint64 // 0 = none, or not below the host's memory
	MemoryUsedBytes  uint64
	MemoryAtLimit    uint64 // times the limit was hit
	OOMKills         uint64
	MemoryStallUS    uint64 // v2: memory.pressure "some"
	groupLimits

	from   []groupSource
	taken  uint64 // latest start of any process when it was read, ticks since boot
	oldest uint64 // earliest start of a process of interest in it
}

// A cgroupScan is one reading of the groups that matter.
type cgroupScan struct {
	fs         FS
	mounts     cgroupMounts
	hostMemory uint64
	taken      uint64
	groups     map[groupKey]*CgroupSample
	read       map[string]bool // directories that were read
	outside    int             // processes whose groups are not mounted here
	denied     error
	deniedDir  string

	raw *raw
	dir string // that fd is open for
	fd  int
}

type groupKey struct {
	path    string
	version int
}

// Cgroups reads the control groups of the processes of interest (those of procs
// whose pid is in interesting) and of all their ancestors, v2 and the v1
// controllers cpu and memory, where they are mounted.
func (fs FS) Cgroups(procs []ProcSample, interesting map[int]bool) ([]CgroupSample, []observe.Gap) {
	s := cgroupScan{fs: fs, hostMemory: fs.totalMemory(), groups: make(map[groupKey]*CgroupSample), read: make(map[string]bool)}
	err := fs.parse("self/mountinfo", func(r io.Reader) (err error) { s.mounts, err = parseMountinfo(r); return })
	if err != nil {
		return nil, []observe.Gap{{
			Kind: observe.KindCgroup, Subject: filepath.Join(fs.Proc, "self/mountinfo"),
			Because: because("not readable", err, ""),
		}}
	}
	defer s.end()
	s.moveMounts()
	for i := range procs {
		s.taken = max(s.taken, procs[i].StartTicks)
	}
	for i := range procs {
		if p := &procs[i]; interesting[p.PID] && p.Groups != nil {
			s.process(p)
		}
	}
	out := make([]CgroupSample, 0, len(s.groups))
	for _, g := range s.groups {
		slices.Sort(g.PIDs)
		g.taken = s.taken
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b CgroupSample) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return a.Version - b.Version
	})
	return out, s.gaps()
}

// moveMounts looks for what is mounted below /sys below fs.Sys.
func (s *cgroupScan) moveMounts() {
	for _, ms := range [][]cgroupMount{s.mounts.v2, s.mounts.cpu, s.mounts.memory, s.mounts.pids, s.mounts.blkio, s.mounts.cpuset} {
		for i := range ms {
			if rest, ok := strings.CutPrefix(ms[i].dir, "/sys/"); ok {
				ms[i].dir = filepath.Join(s.fs.Sys, rest)
			}
		}
	}
}

// groupRead reads what one hierarchy says of a group, from its directory.
type groupRead func(s *cgroupScan, dir string, g *CgroupSample)

// process notes one process in its groups, and reads those not read yet.
func (s *cgroupScan) process(p *ProcSample) {
	missing := false
	for _, h := range []struct {
		mounts  []cgroupMount
		path    string
		version int
		read    groupRead
	}{
		{s.mounts.v2, p.Groups.V2, 2, (*cgroupScan).readV2},
		{s.mounts.cpu, p.Groups.CPU, 1, (*cgroupScan).readV1CPU},
		{s.mounts.memory, p.Groups.Memory, 1, (*cgroupScan).readV1Memory},
		{s.mounts.pids, p.Groups.PIDs, 1, (*cgroupScan).readPIDs},
		{s.mounts.blkio, p.Groups.BlkIO, 1, (*cgroupScan).readV1BlkIO},
	} {
		dirs := lineage(h.mounts, h.path)
		// The unified hierarchy is listed for each process even where nobody uses it.
		if dirs == nil && h.path != "" && (h.version == 1 || h.path != "/") {
			missing = true
		}
		for _, d := range dirs {
			g := s.group(d.path, h.version, p)
			if !s.read[d.dir] {
				s.read[d.dir] = true
				g.from = append(g.from, groupSource{d.dir, h.read})
				h.read(s, d.dir, g)
			}
		}
	}
	if missing {
		s.outside++
	}
}

func (s *cgroupScan) group(path string, version int, p *ProcSample) *CgroupSample {
	k := groupKey{path, version}
	g := s.groups[k]
	if g == nil {
		g = &CgroupSample{Path: printable.Name([]byte(path), 4096), Version: version, oldest: p.StartTicks}
		s.groups[k] = g
	}
	if n := len(g.PIDs); n == 0 || g.PIDs[n-1] != p.PID {
		g.PIDs = append(g.PIDs, p.PID)
	}
	g.oldest = min(g.oldest, p.StartTicks)
	return g
}

func (s *cgroupScan) gaps() []observe.Gap {
	var gaps []observe.Gap
	if s.outside > 0 {
		gaps = append(gaps, observe.Gap{
			Kind: observe.KindCgroup, Partial: len(s.groups) > 0, Subject: fmt.Sprintf("%d processes", s.outside),
			Because: "a control group of theirs is not mounted where slowray runs",
		})
	}
	if s.denied != nil {
		gaps = append(gaps, observe.Gap{
			Kind: observe.KindCgroup, Partial: true, Subject: s.deniedDir,
			Because: because("not readable", s.denied, "CAP_DAC_READ_SEARCH"),
		})
	}
	return gaps
}

// file reads one file of a group. A missing file is normal: the root group has
// few, and a controller that is not on for the group has none.
func (s *cgroupScan) file(dir, name string) ([]byte, bool) {
	b, err := s.read1(dir, name)
	if err != nil && errors.Is(err, os.ErrPermission) && s.denied == nil {
		s.denied, s.deniedDir = err, dir
	}
	return bytes.Clone(b), err == nil
}

// read1 reads a file by way of its directory, which is kept open: there are
// many files to a group.
func (s *cgroupScan) read1(dir, name string) ([]byte, error) {
	if s.raw == nil {
		s.raw, s.fd = getRaw(), -1
	}
	if s.dir != dir || s.fd < 0 {
		s.close()
		fd, err := s.raw.open(unix.AT_FDCWD, s.raw.cstring(dir), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		s.dir, s.fd = dir, fd
	}
	return s.raw.read(s.fd, s.raw.cstring(name))
}

func (s *cgroupScan) close() {
	if s.raw != nil && s.fd >= 0 {
		closeFD(s.fd)
		s.fd = -1
	}
}

// end gives back what reading took.
func (s *cgroupScan) end() {
	if s.raw != nil {
		s.close()
		s.raw.put()
		s.raw = nil
	}
}

// readV2 reads a group of the unified hierarchy
// (Documentation/admin-guide/cgroup-v2.rst).
func (s *cgroupScan) readV2(dir string, g *CgroupSample) {
	if b, ok := s.file(dir, "cpu.max"); ok {
		if g.QuotaNS, g.PeriodNS = parseCPUMax(b); g.QuotaNS > 0 {
			g.QuotaFile = filepath.Join(dir, "cpu.max")
		}
	}
	if b, ok := s.file(dir, "cpu.stat"); ok {
		g.Periods = flatKey(b, "nr_periods")
		g.Throttled = flatKey(b, "nr_throttled")
		g.ThrottledNS = saturate(flatKey(b, "throttled_usec"), 1000)
	}
	if b, ok := s.file(dir, "memory.max"); ok {
		g.MemoryLimitBytes, g.memoryFile = s.limit(b), filepath.Join(dir, "memory.max")
	}
	if b, ok := s.file(dir, "memory.current"); ok {
		g.MemoryUsedBytes, _ = ParseUint(bytes.TrimSpace(b))
	}
	if b, ok := s.file(dir, "memory.events"); ok {
		g.OOMKills = flatKey(b, "oom_kill")
	}
	if b, ok := s.ownEvents(dir); ok {
		g.MemoryAtLimit = flatKey(b, "max")
	}
	if b, ok := s.file(dir, "memory.pressure"); ok {
		p, _ := parsePressure(bytes.NewReader(b))
		g.MemoryStallUS = p.some
	}
	s.readV2Limits(dir, g)
}

// ownEvents are those of memory.events that the group's own limits brought about; before 5.2
// there are only those of the groups below as well.
func (s *cgroupScan) ownEvents(dir string) ([]byte, bool) {
	if b, ok := s.file(dir, "memory.events.local"); ok {
		return b, true
	}
	return s.file(dir, "memory.events")
}

// readV1CPU reads a group of the v1 controller cpu (Documentation/scheduler/sched-bwc.rst).
func (s *cgroupScan) readV1CPU(dir string, g *CgroupSample) {
	if b, ok := s.file(dir, "cpu.cfs_quota_us"); ok {
		if us, ok := parseInt(bytes.TrimSpace(b)); ok && us > 0 && us < 1<<50 {
			g.QuotaNS, g.QuotaFile = us*1000, filepath.Join(dir, "cpu.cfs_quota_us")
		}
	}
	if b, ok := s.file(dir, "cpu.cfs_period_us"); ok {
		if us, ok := parseInt(bytes.TrimSpace(b)); ok && us > 0 && us < 1<<50 {
			g.PeriodNS = us * 1000
		}
	}
	if b, ok := s.file(dir, "cpu.stat"); ok {
		g.Periods = flatKey(b, "nr_periods")
		g.Throttled = flatKey(b, "nr_throttled")
		g.ThrottledNS = flatKey(b, "throttled_time")
	}
	if b, ok := s.file(dir, "cpu.shares"); ok {
		g.CPUWeight, g.weightFile = weightOfShares(b), filepath.Join(dir, "cpu.shares")
	}
}

// readV1Memory reads a group of the v1 controller memory
// (Documentation/admin-guide/cgroup-v1/memory.rst).
func (s *cgroupScan) readV1Memory(dir string, g *CgroupSample) {
	if b, ok := s.file(dir, "memory.limit_in_bytes"); ok {
		g.MemoryLimitBytes, g.memoryFile = s.limit(b), filepath.Join(dir, "memory.limit_in_bytes")
	}
	if b, ok := s.file(dir, "memory.usage_in_bytes"); ok {
		g.MemoryUsedBytes, _ = ParseUint(bytes.TrimSpace(b))
	}
	if b, ok := s.file(dir, "memory.failcnt"); ok {
		g.MemoryAtLimit, _ = ParseUint(bytes.TrimSpace(b))
	}
	if b, ok := s.file(dir, "memory.oom_control"); ok {
		g.OOMKills = flatKey(b, "oom_kill")
	}
	if g.MemoryLimitBytes > 0 {
		s.memoryStat(dir, g, "total_cache", "total_workingset_refault_file")
	}
}

// limit reads a memory limit: "max" and, in v1, a number near 2^63 mean none,
// and so does one the host's memory cannot reach.
func (s *cgroupScan) limit(b []byte) uint64 {
	v, ok := ParseUint(bytes.TrimSpace(b))
	if !ok || v >= 1<<62 || (s.hostMemory > 0 && v >= s.hostMemory) {
		return 0
	}
	return v
}

// parseCPUMax reads cpu.max: quota and period in microseconds, "max" for none.
func parseCPUMax(b []byte) (quotaNS, periodNS int64) {
	line, _ := nextLine(b)
	q, line := nextField(line)
	p, _ := nextField(line)
	if us, ok := parseInt(p); ok && us > 0 && us < 1<<50 {
		periodNS = us * 1000
	}
	if us, ok := parseInt(q); ok && us > 0 && us < 1<<50 {
		quotaNS = us * 1000
	}
	return quotaNS, periodNS
}

// flatKey is the value of a key in a flat keyed file ("KEY VALUE" lines).
func flatKey(b []byte, key string) uint64 {
	v, _ := AfterKey(b, key+" ")
	n, _ := ParseUint(v)
	return n
}

// saturate is a*b, or the largest number when that overflows.
func saturate(a, b uint64) uint64 {
	if a > 0 && b > ^uint64(0)/a {
		return ^uint64(0)
	}
	return a * b
}
