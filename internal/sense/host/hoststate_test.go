package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
)

func TestMdstat(t *testing.T) {
	got := parseMdstat([]byte(`Personalities : [raid1] [raid6] [raid5] [raid4]
md0 : active raid1 sdb1[1] sda1[0](F)
      1046528 blocks super 1.2 [2/1] [_U]

md1 : active raid5 sde1[3] sdd1[1] sdc1[0]
      2093056 blocks super 1.2 level 5, 512k chunk, algorithm 2 [3/3] [UUU]

md127 : active (auto-read-only) raid1 sdg[1] sdf[0]
      1046528 blocks super 1.2 [2/2] [UU]
      [==>..................]  resync = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec

unused devices: <none>
`))
	want := []observe.RAIDArray{
		{Name: "md0", Level: "raid1", Devices: 2, Working: 1},
		{Name: "md127", Level: "raid1", Devices: 2, Working: 2, Action: "resync"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := parseMdstat([]byte("md0 :\n[9/x] [\n\xff")); got != nil {
		t.Error(got)
	}
}

func TestHostState(t *testing.T) {
	fs := FS{Proc: t.TempDir(), Sys: t.TempDir()}
	put(t, filepath.Join(fs.Sys, "devices/system/clocksource/clocksource0/current_clocksource"), "hpet\n")
	put(t, filepath.Join(fs.Sys, "devices/system/clocksource/clocksource0/available_clocksource"), "tsc hpet acpi_pm \n")
	for cpu, freq := range []string{"800000", "1200000"} {
		dir := filepath.Join(fs.Sys, "devices/system/cpu", "cpu"+string(rune('0'+cpu)))
		put(t, filepath.Join(dir, "cpufreq/scaling_cur_freq"), freq+"\n")
		put(t, filepath.Join(dir, "cpufreq/cpuinfo_max_freq"), "3000000\n")
		put(t, filepath.Join(dir, "cpufreq/scaling_max_freq"), "1200000\n")
		put(t, filepath.Join(dir, "thermal_throttle/core_throttle_count"), "7\n")
	}
	if s := fs.HostState(); s.Clocksource != "hpet" || len(s.Clocksources) != 3 || s.Arrays != nil {
		t.Errorf("%+v", s)
	}
	if now, most, limit := fs.Frequency(); now != 1_000_000 || most != 3_000_000 || limit != 1_200_000 {
		t.Error(now, most, limit)
	}
	if n := fs.ThermalThrottles(); n != 14 {
		t.Error(n)
	}
}

func TestLargestWritten(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(1<<40, 0); err != nil {
		t.Fatal(err)
	}
	got, ok := Default().LargestWritten(os.Getpid())
	if !ok || got.Path != f.Name() || got.Bytes != 1<<40 {
		t.Errorf("%+v %v", got, ok)
	}
}
