package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

const maxFreqCPUs = 8 // whose frequency is looked at

// readNumber reads a file that holds one number; 0 when it cannot be read.
func readNumber(path string) uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := ParseUint(bytes.TrimSpace(b))
	return n
}

// Frequency is the mean frequency of some CPUs, what they can do and what they
// are limited to, kHz; zeros where the kernel shows none, as in most virtual
// machines (Documentation/admin-guide/pm/cpufreq.rst).
func (fs FS) Frequency() (now, most, limit uint64) {
	n := uint64(0)
	for cpu := range maxFreqCPUs {
		dir := fmt.Sprintf("%s/devices/system/cpu/cpu%d/cpufreq", fs.Sys, cpu)
		cur := readNumber(dir + "/scaling_cur_freq")
		if cur == 0 {
			break
		}
		now += cur
		most += readNumber(dir + "/cpuinfo_max_freq")
		limit += readNumber(dir + "/scaling_max_freq")
		n++
	}
	if n == 0 {
		return 0, 0, 0
	}
	return now / n, most / n, limit / n
}

// ThermalThrottles is how often the first CPUs, and their packages, were slowed
// down for heat since boot (x86: arch/x86/kernel/cpu/mce/therm_throt.c).
func (fs FS) ThermalThrottles() (sum uint64) {
	for cpu := range maxFreqCPUs {
		dir := fmt.Sprintf("%s/devices/system/cpu/cpu%d/thermal_throttle", fs.Sys, cpu)
		sum += readNumber(dir + "/core_throttle_count")
		if cpu == 0 {
			sum += readNumber(dir + "/package_throttle_count")
		}
	}
	return sum
}

// HostState reads what the machine is besides its load. What it does not have
// is left empty.
func (fs FS) HostState() observe.HostState {
	var s observe.HostState
	dir := filepath.Join(fs.Sys, "devices/system/clocksource/clocksource0")
	if b, err := os.ReadFile(dir + "/current_clocksource"); err == nil {
		s.Clocksource = printable.Name(bytes.TrimSpace(b), 32)
	}
	if b, err := os.ReadFile(dir + "/available_clocksource"); err == nil {
		for _, f := range bytes.Fields(b[:min(len(b), 512)]) {
			s.Clocksources = append(s.Clocksources, printable.Name(f, 32))
		}
	}
	if b, err := os.ReadFile(filepath.Join(fs.Proc, "mdstat")); err == nil {
		s.Arrays = parseMdstat(b)
	}
	return s
}

// parseMdstat lists the arrays that are not whole, or at work on themselves
// (drivers/md/md.c, md_seq_show):
//
//	md0 : active raid1 sdb1[1] sda1[0](F)
//	      1046528 blocks super 1.2 [2/1] [_U]
//	      [==>..................]  recovery = 12.6% (37043392/292945152)
func parseMdstat(b []byte) []observe.RAIDArray {
	var out []observe.RAIDArray
	var a observe.RAIDArray
	end := func() {
		if a.Name != "" && (a.Working < a.Devices || a.Action != "") && len(out) < 64 {
			out = append(out, a)
		}
		a = observe.RAIDArray{}
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 4 && f[1] == ":" && strings.HasPrefix(f[0], "md"):
			end()
			a.Name = printable.Name([]byte(f[0]), 32)
			for _, word := range f[3:] {
				if strings.HasPrefix(word, "raid") || word == "linear" || word == "multipath" {
					a.Level = printable.Name([]byte(word), 16)
				}
			}
		case a.Name == "":
		default:
			for _, word := range f {
				var devices, working int
				if n, _ := fmt.Sscanf(word, "[%d/%d]", &devices, &working); n == 2 {
					a.Devices, a.Working = devices, working
				}
			}
			for _, action := range []string{"recovery", "resync", "check", "reshape"} {
				if strings.Contains(line, "] "+" "+action+" =") || strings.Contains(line, action+" = ") {
					a.Action = action
				}
			}
		}
	}
	end()
	return out
}

const maxWrittenFDs = 256 // open files of a process that are looked at

// LargestWritten is the regular file that a process has open for writing and
// whose offset is furthest; false when there is none.
func (fs FS) LargestWritten(pid int) (f observe.WrittenFile, ok bool) {
	dir := fmt.Sprintf("%s/%d", fs.Proc, pid)
	d, err := os.Open(dir + "/fd")
	if err != nil {
		return f, false
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxWrittenFDs)
	for _, name := range names {
		target, err := os.Readlink(dir + "/fd/" + name)
		if err != nil || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "/dev/") || strings.HasPrefix(target, "/proc/") {
			continue
		}
		b, err := os.ReadFile(dir + "/fdinfo/" + name)
		if err != nil {
			continue
		}
		pos, _ := AfterKey(b, "pos:")
		n, _ := ParseUint(pos)
		flags, _ := AfterKey(b, "flags:")
		if len(flags) == 0 || flags[len(flags)-1]&3 == 0 { // O_RDONLY; the digits are octal
			continue
		}
		if n > f.Bytes {
			f, ok = observe.WrittenFile{Path: printable.Name([]byte(target), 256), Bytes: n}, true
		}
	}
	return f, ok
}
