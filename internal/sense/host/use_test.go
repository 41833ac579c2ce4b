package host

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slowray/slowray/internal/observe"
)

func TestHost(t *testing.T) {
	got, err := fixture(t, "web-6.18").Host()
	if err != nil {
		t.Fatal(err)
	}
	want := observe.Host{
		Name: "web1", Kernel: "6.18.44-fc-v669", BootID: "051b0a08-3c0d-4db5-8496-e3e4f54c3536",
		CPUs: 2, MemoryBytes: 24684084 << 10, NetNS: 4026531833,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := (FS{Proc: t.TempDir()}).Host(); err == nil {
		t.Error("no error without osrelease")
	}
}

func TestUseBetween(t *testing.T) {
	fs := fixture(t, "web-6.18")
	a, gaps := fs.Use()
	if len(gaps) != 0 {
		t.Fatal(gaps)
	}
	for name, replace := range map[string][2]string{
		"stat": {"cpu0 2388 0 760 93537 237 0 21 3 0 0", "cpu0 2488 0 761 93637 237 0 31 3 0 0"},
		// The second CPU's idle time goes backwards, which iowait and idle do.
		"meminfo":          {"24327344", "24327000"},
		"vmstat":           {"pgmajfault 20", "pgmajfault 25"},
		"diskstats":        {"vda 51897 8448 2251986 6832 15924", "vda 51899 8448 2251994 6840 15924"},
		"pressure/io":      {"total=2986841", "total=3986841"},
		"net/softnet_stat": {"00000002 0000000f", "00000004 00000010"},
	} {
		change(t, filepath.Join(fs.Proc, name), replace[0], replace[1])
	}
	change(t, filepath.Join(fs.Proc, "softirqs"), "100 4294967290", "900          4") // a 32-bit counter goes round
	change(t, filepath.Join(fs.Proc, "stat"), "cpu1 2677 0 770 93223", "cpu1 2677 0 770 93000")
	change(t, filepath.Join(fs.Proc, "stat"), "processes 10286", "processes 10290")
	b, _ := fs.Use()
	b.At = a.At.Add(2 * time.Second)
	cpu0 := observe.CPUTime{User: 1, System: 0.01, Idle: 0.97, SoftIRQ: 0.1} // idle held to 2 s and the slack
	want := observe.HostUse{
		CPU:    cpu0,
		PerCPU: []observe.CPUTime{cpu0, {}},
		Softnet: []observe.Softnet{
			{CPU: 0}, {CPU: 1, Dropped: 2, Squeezed: 1},
		},
		Memory: observe.Memory{
			TotalBytes: 24684084 << 10, AvailableBytes: 24327000 << 10, SwapTotalBytes: 1048576 << 10, SwapFreeBytes: 1000000 << 10,
		},
		VM:       map[string]uint64{"pgmajfault": 5},
		Disks:    []observe.Disk{{Name: "vda", Number: "254:0", Reads: 2, ReadBytes: 8 * 512, ReadSeconds: 0.008}},
		Pressure: map[string]observe.Pressure{"cpu": {}, "memory": {}, "io": {SomeSeconds: 1}},
		Forks:    4,
		SoftIRQs: map[string][]uint64{"NET_RX": {800, 10, 0}},
	}
	if d := cmp.Diff(want, UseBetween(a, b), cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
}

func TestCPUBetween(t *testing.T) {
	fs := fixture(t, "web-6.18")
	a, err := fs.CPU()
	if err != nil {
		t.Fatal(err)
	}
	change(t, filepath.Join(fs.Proc, "stat"), "cpu0 2388 0 760 93537 237 0 21 3 0 0", "cpu0 2408 0 761 93540 238 0 21 3 0 0")
	b, err := fs.CPU()
	if err != nil {
		t.Fatal(err)
	}
	b.at = a.at.Add(250 * time.Millisecond)
	want := observe.CPUTime{User: 0.2, System: 0.01, Idle: 0.03, IOWait: 0.01}
	if d := cmp.Diff(want, CPUBetween(a, b), cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
	if _, err := (FS{Proc: t.TempDir()}).CPU(); err == nil {
		t.Error("no error without /proc/stat")
	}
}

func change(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := strings.Replace(string(b), old, new, 1)
	if s == string(b) {
		t.Fatalf("%s: no %q", path, old)
	}
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestUseGaps(t *testing.T) {
	fs := FS{Proc: t.TempDir(), Sys: t.TempDir()}
	_, gaps := fs.Use()
	kinds := make(map[observe.Kind]int)
	for _, g := range gaps {
		if !g.Partial {
			kinds[g.Kind]++
		}
		if g.Because == "" || strings.Contains(g.Because, fs.Proc) {
			t.Errorf("gap %+v: reason empty or with a path in it", g)
		}
	}
	want := map[observe.Kind]int{observe.KindCPU: 1, observe.KindMemory: 1, observe.KindDisk: 1, observe.KindPressure: 1}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Error(d)
	}
}

func TestStatCPUsComeAndGo(t *testing.T) {
	parse := func(s string) statSample {
		out, err := parseStat(strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a := parse("cpu 300 0 0 0 0 0 0 0\ncpu0 100 0 0 0\ncpu1 100 0 0 0\ncpu2 100 0 0 0\ncpu99999999 5\n")
	b := parse("cpu 700 0 0 9999999 0 0 0 0\ncpu0 200 0 0 100\ncpu2 300 0 0 999999\ncpu3 50 0 0 0\n")
	all, each := statBetween(a, b, 2*time.Second)
	idle2 := 0.08 // busy for all of the time: only the slack is left
	want := []observe.CPUTime{{User: 1, Idle: 1}, {}, {User: 2, Idle: idle2}, {}}
	if d := cmp.Diff(want, each, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(observe.CPUTime{User: 3, Idle: 1 + idle2}, all, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
	if a.online() != 3 || b.online() != 3 {
		t.Error(a.online(), b.online())
	}
	// A file with the sum line only.
	all, each = statBetween(parse("cpu 1 1 1 1\n"), parse("cpu 101 1 1 1 0 0 0 0 0 0 7\n"), time.Second)
	if all.User != 1 || each != nil {
		t.Error(all, each)
	}
}

func TestSoftnetOldFormat(t *testing.T) {
	// Linux 4.19: 11 columns, no CPU number.
	got, err := parseSoftnet(strings.NewReader(
		"00000001 00000002 00000003 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n" +
			"bad line\n" +
			"ffffffff 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []observe.Softnet{{CPU: 0, Processed: 1, Dropped: 2, Squeezed: 3}, {CPU: 1, Processed: 0xffffffff, Squeezed: 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// The counter of the second CPU wraps; the first CPU went off.
	d := softnetBetween(got, []observe.Softnet{{CPU: 1, Processed: 9, Squeezed: 1}, {CPU: 5, Processed: 1}})
	if diff := cmp.Diff([]observe.Softnet{{CPU: 1, Processed: 10}}, d); diff != "" {
		t.Error(diff)
	}
}

func TestWholeDisksWithoutSysfs(t *testing.T) {
	all := []diskSample{{name: "sda"}, {name: "sda1"}, {name: "sda12"}, {name: "nvme0n1"}, {name: "nvme0n1p2"}, {name: "md0"}, {name: "dm-1"}}
	var got []string
	for _, d := range (FS{Sys: filepath.Join(t.TempDir(), "none")}).wholeDisks(all) {
		got = append(got, d.name)
	}
	if d := cmp.Diff([]string{"sda", "nvme0n1", "md0", "dm-1"}, got); d != "" {
		t.Error(d)
	}
}

// TestRealUse holds the CPU time against the ticks that /proc/stat has before and after
// each of the reads: of a pause of the whole machine it may have none.
func TestRealUse(t *testing.T) {
	fs := Default()
	a0 := ticksOfCPUs(t)
	a, _ := fs.Use()
	a1 := ticksOfCPUs(t)
	time.Sleep(300 * time.Millisecond)
	b0 := ticksOfCPUs(t)
	b, _ := fs.Use()
	b1 := ticksOfCPUs(t)
	u := UseBetween(a, b)
	cpus := float64(b.stat.online())
	least, most := (b0-a1)/clockTicks(t), (b1-a0)/clockTicks(t)
	// The time of waiting for I/O may go back by a tick.
	if got, slack := u.CPU.Total(), 0.02*cpus; got < least-slack || got > most+slack {
		t.Errorf("CPU time of %g CPUs adds up to %g s, in /proc/stat to %g to %g", cpus, got, least, most)
	}
}

// ticksOfCPUs adds up the CPU lines of /proc/stat, without those of guests, which are in
// the others.
func ticksOfCPUs(t *testing.T) (sum float64) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "cpu") || fields[0] == "cpu" {
			continue
		}
		for _, f := range fields[1:min(9, len(fields))] {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// clockTicks is how many ticks a second has, as the kernel tells each process.
func clockTicks(t *testing.T) float64 {
	t.Helper()
	const clkTck = 17 // AT_CLKTCK, getauxval(3)
	text, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		t.Fatal(err)
	}
	for ; len(text) >= 16; text = text[16:] {
		if binary.NativeEndian.Uint64(text) == clkTck {
			return float64(binary.NativeEndian.Uint64(text[8:]))
		}
	}
	t.Fatal("no AT_CLKTCK")
	return 0
}
