package phpfpm

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/host"
)

// Lines of php-fpm 7.4, 8.2 and of log_level = debug.
var logCases = []struct {
	line, pool, kind string
	figure           int
}{
	{"[21-Oct-2026 06:29:00] WARNING: [pool www] server reached max_children setting (5), consider raising it", "www", KindMaxChildren, 5},
	{"[21-Oct-2026 06:29:00] WARNING: [pool www] server reached pm.max_children setting (5), consider raising it", "www", KindMaxChildren, 5},
	{"[21-Oct-2026 06:29:00.123456] WARNING: pid 12, fpm_pctl_on_socket_accept(), line 510: [pool a.b] server reached max_children setting (7), consider raising it", "a.b", KindMaxChildren, 7},
	{"[21-Oct-2026 06:29:00] WARNING: [pool www] seems busy (you may need to increase pm.start_servers, or pm.min/max_spare_servers), spawning 8 children, there are 0 idle, and 14 total children", "www", KindSeemsBusy, 14},
	{"[21-Oct-2026 06:29:00] WARNING: [pool www] The maximum number of processes has been reached. Please review your configuration and consider raising 'process.max'", "www", KindProcessMax, 0},
	{`[21-Oct-2026 06:29:00] WARNING: [pool www] child 9, script '/x.php' (request: "GET /x.php?a=1") executing too slow (5.012345 sec), logging`, "www", KindSlowRequest, 5},
	{`[21-Oct-2026 06:29:00] WARNING: [pool www] child 9, script '/x.php' (request: "GET /executing too slow (99.0 sec), logging") execution timed out (30.2 sec), terminating`, "www", KindExecutionTimeout, 30},
	{"[21-Oct-2026 06:29:00] WARNING: [pool www] child 9 exited on signal 11 (SIGSEGV - core dumped) after 12.3 seconds from start", "www", KindChildExited, 11},
	{"[21-Oct-2026 06:29:00] WARNING: [pool www] child 9 exited with code 255 after 12.3 seconds from start", "www", KindChildExited, 255},
	{"[21-Oct-2026 06:29:00] NOTICE: [pool www] child 9 exited with code 0 after 12.3 seconds from start", "www", KindChildRecycled, 0},
	{`[21-Oct-2026 06:29:00] WARNING: [pool www] child 9 said into stderr: "server reached max_children setting (5)"`, "www", "", 0},
	{"[21-Oct-2026 06:29:00] NOTICE: fpm is running, pid 1", "", "", 0},
}

func TestClassify(t *testing.T) {
	for _, c := range logCases {
		l, ok := parseLogLine([]byte(c.line))
		if !ok {
			t.Errorf("not parsed: %s", c.line)
			continue
		}
		kind, figure := l.classify()
		if string(l.pool) != c.pool || kind != c.kind || figure != c.figure {
			t.Errorf("%s\n got %q %q %d\nwant %q %q %d", c.line, l.pool, kind, figure, c.pool, c.kind, c.figure)
		}
	}
	for _, s := range []string{"", "[", "NOTICE: x", "[21-Oct-2026 06:29:00]", "[21-Oct-2026 06:29:00] ", "[21-Oct-2026 06:29:00] MAYBE: x", "#0 /x.php(12): f()"} {
		if _, ok := parseLogLine([]byte(s)); ok {
			t.Errorf("parsed: %q", s)
		}
	}
}

// TestReadLogOutsideWindow: lines of another time are not counted, a log in
// another zone is.
func TestReadLogOutsideWindow(t *testing.T) {
	start := time.Date(2026, 10, 21, 6, 29, 0, 0, time.Local)
	for name, c := range map[string]struct {
		stamps []string
		want   int64
	}{
		"in":         {[]string{"21-Oct-2026 06:28:59", "21-Oct-2026 06:29:10", "21-Oct-2026 06:29:11"}, 3},
		"before":     {[]string{"21-Oct-2026 06:25:03", "21-Oct-2026 06:29:05"}, 1},
		"other zone": {[]string{"21-Oct-2026 11:59:02", "21-Oct-2026 11:59:05", "21-Oct-2026 11:50:05"}, 2},
	} {
		clock := logtail.NewClock(observe.Window{Start: start, Seconds: 10})
		var times stamps
		var n int64
		for _, s := range c.stamps {
			second, ok := times.parse([]byte(s))
			if _, in := clock.In(second); ok && in {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%s: %d lines, want %d", name, n, c.want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, c := range logCases {
		f.Add([]byte(c.line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, ok := parseLogLine(b)
		if !ok {
			return
		}
		var s stamps
		s.parse(l.stamp)
		if kind, figure := l.classify(); figure < 0 || kind == "" && figure != 0 {
			t.Errorf("%q %d", kind, figure)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	var text strings.Builder
	for _, c := range logCases {
		text.WriteString(c.line + "\n")
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	bs := make([][]byte, len(lines))
	for i, l := range lines {
		bs[i] = []byte(l)
	}
	var times stamps
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range bs {
			if l, ok := parseLogLine(line); ok {
				times.parse(l.stamp)
				l.classify()
			}
		}
	}
}

func TestSampleRounds(t *testing.T) {
	in := &Instance{poolOf: map[int]string{}, seen: map[int]string{}, procRoot: t.TempDir(),
		byName: map[string]*poolState{"www": {max: 2}}}
	in.pools = []*poolState{in.byName["www"]}
	in.byName["www"].pool.Name = "www"
	in.poolOf = map[int]string{1: "www", 2: "www", 3: "www"}
	in.Watch([]int{1, 2, 3})
	rounds := []map[int]host.Activity{ // no entry: cannot be known
		{1: host.Idle, 2: host.Running},
		{1: host.Polling, 2: host.Running},
		{1: host.Running, 2: host.Waiting, 3: host.Reading},
		{1: host.Running, 2: host.Gone},
	}
	for _, r := range rounds {
		in.Sample(enough(), func(pid int) host.Activity { return r[pid] })
	}
	got, _, _ := in.End(enough(), observe.Window{Start: time.Now(), Seconds: 1}, nil)
	want := []observe.FPMPool{{Name: "www", Rounds: 4, AllBusyRounds: 2, BusyMean: 7.0 / 4, BusyPeak: 3, RunningMean: 4.0 / 4, BlockedMean: 1.0 / 4}}
	if d := cmp.Diff(want, got.Pools); d != "" {
		t.Error(d)
	}
}
