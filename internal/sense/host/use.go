package host

import (
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// UseSample is how the machine's resources stood at one moment. Counters are
// totals since boot; only UseBetween gives them a meaning.
type UseSample struct {
	At       time.Time // when it was read
	stat     statSample
	softnet  []observe.Softnet
	softirqs map[string][]uint64
	memory   observe.Memory
	vm       map[string]uint64
	disks    []diskSample
	pressure map[string]pressureSample
}

// Use reads the machine's resources: /proc/stat, /proc/softirqs,
// /proc/net/softnet_stat, /proc/meminfo, /proc/vmstat, /proc/diskstats and /proc/pressure. Each source
// that cannot be read is a gap.
func (fs FS) Use() (UseSample, []observe.Gap) {
	s := UseSample{At: time.Now(), pressure: make(map[string]pressureSample, 3)}
	var gaps []observe.Gap
	read := func(kind observe.Kind, name string, partial bool, parse func(io.Reader) error) {
		if err := fs.parse(name, parse); err != nil {
			gaps = append(gaps, observe.Gap{
				Kind: kind, Subject: filepath.Join(fs.Proc, name), Partial: partial,
				Because: because("not readable", err, ""),
			})
		}
	}
	read(observe.KindCPU, "stat", false, func(r io.Reader) (err error) { s.stat, err = parseStat(r); return })
	read(observe.KindCPU, "net/softnet_stat", true, func(r io.Reader) (err error) { s.softnet, err = parseSoftnet(r); return })
	read(observe.KindCPU, "softirqs", true, func(r io.Reader) (err error) { s.softirqs, err = parseSoftIRQs(r); return })
	read(observe.KindMemory, "meminfo", false, func(r io.Reader) (err error) { s.memory, err = parseMeminfo(r); return })
	read(observe.KindMemory, "vmstat", true, func(r io.Reader) (err error) { s.vm, err = parseVmstat(r); return })
	read(observe.KindDisk, "diskstats", false, func(r io.Reader) error {
		all, err := parseDiskstats(r)
		s.disks = fs.wholeDisks(all)
		return err
	})
	gaps = append(gaps, fs.readPressure(&s)...)
	return s, gaps
}

// CPUSample is how far the CPU clocks of the host stood at one moment.
type CPUSample struct {
	at   time.Time
	stat statSample
}

// CPU reads the CPU clocks alone, from /proc/stat: cheap enough to do several
// times a second.
func (fs FS) CPU() (CPUSample, error) {
	s := CPUSample{at: time.Now()}
	err := fs.parse("stat", func(r io.Reader) (err error) { s.stat, err = parseStat(r); return })
	return s, err
}

// CPUBetween is what all CPUs together did from a to b.
func CPUBetween(a, b CPUSample) observe.CPUTime {
	all, _ := statBetween(a.stat, b.stat, b.at.Sub(a.at))
	return all
}

// readPressure fills in what /proc/pressure has. A kernel without it is one
// gap, not three.
func (fs FS) readPressure(s *UseSample) []observe.Gap {
	var gaps []observe.Gap
	for _, what := range []string{"cpu", "memory", "io"} {
		err := fs.parse("pressure/"+what, func(r io.Reader) error {
			p, err := parsePressure(r)
			if err == nil {
				s.pressure[what] = p
			}
			return err
		})
		if err == nil {
			continue
		}
		gaps = append(gaps, observe.Gap{
			Kind: observe.KindPressure, Subject: filepath.Join(fs.Proc, "pressure", what), Partial: true,
			Because: because("not readable", err, ""),
		})
	}
	if len(s.pressure) > 0 {
		return gaps
	}
	return []observe.Gap{{
		Kind: observe.KindPressure, Subject: filepath.Join(fs.Proc, "pressure"),
		Because: "this kernel keeps no pressure figures (needs CONFIG_PSI, and psi=1 on the kernel command line where that is off by default)",
	}}
}

// parse opens a file below Proc and hands it to a parser.
func (fs FS) parse(name string, parse func(io.Reader) error) error {
	f, err := os.Open(filepath.Join(fs.Proc, name))
	if err != nil {
		return err
	}
	defer f.Close()
	return parse(f)
}

// UseBetween is what happened from a to b. A counter that went backwards counts
// as not moved; CPUs, disks and counters that are only in one sample are left
// out, but PerCPU keeps a zero element for such a CPU, so that its index is the
// CPU number. VM holds only counters that rose.
func UseBetween(a, b UseSample) observe.HostUse {
	u := observe.HostUse{
		Softnet:  softnetBetween(a.softnet, b.softnet),
		SoftIRQs: softIRQsBetween(a.softirqs, b.softirqs),
		Memory:   b.memory,
		VM:       vmBetween(a.vm, b.vm),
		Disks:    disksBetween(a.disks, b.disks),
		Forks:    grown(a.stat.forks, b.stat.forks),
	}
	u.CPU, u.PerCPU = statBetween(a.stat, b.stat, b.At.Sub(a.At))
	for what, p := range b.pressure {
		old, ok := a.pressure[what]
		if !ok {
			continue
		}
		if u.Pressure == nil {
			u.Pressure = make(map[string]observe.Pressure, len(b.pressure))
		}
		u.Pressure[what] = pressureBetween(old, p)
	}
	return u
}
