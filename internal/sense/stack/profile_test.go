package stack

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseRanges(t *testing.T) {
	const text = `ffffffff81000000 T _text
ffffffff82005600 t helper
ffffffff820056b0 T __inet_hash_connect
ffffffff820056b0 t __pfx_same_address
ffffffff820059f0 T next
ffffffff82007a40 d __inet_check_established
not a line
ffffffff82149280 T inet_hash_connect
`
	got, err := parseRanges(strings.NewReader(text), portSearch)
	want := []symbolRange{{0xffffffff820056b0, 0xffffffff820059f0}, {0xffffffff82149280, 0xffffffff8214a280}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(symbolRange{})); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"hidden":  {"0000000000000000 T __inet_hash_connect\n0000000000000000 T next\n", "hidden"},
		"missing": {"ffffffff81000000 T _text\n", "none of"},
		"empty":   {"", "hidden"},
	} {
		if _, err := parseRanges(strings.NewReader(c.text), portSearch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-3": {0, 1, 2, 3}, "0,2-3,8": {0, 2, 3, 8}} {
		got, err := parseCPUList(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %s %v", text, diff, err)
		}
	}
	for _, bad := range []string{"", "a", "3-1", "0-", "0-9999999"} {
		if _, err := parseCPUList(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseCPUList(s) })
}

// TestBusyLoopIsSeen: a process that computes for a second gets about one
// CPU's worth of samples.
func TestBusyLoopIsSeen(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	all := cpuTime(t)
	p, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := cpuTime(t)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
	}
	used := cpuTime(t) - before
	got, losses, err := p.Read(true)
	if err != nil || len(losses) != 0 {
		t.Fatal(err, losses)
	}
	all = cpuTime(t) - all // starting and reading are sampled too, in part
	for _, one := range got.Processes {
		if one.PID == os.Getpid() {
			least, most := used.Seconds()*Hz/2, all.Seconds()*Hz*1.5+5
			if n := float64(one.Samples); n < least || n > most {
				t.Errorf("%.0f samples for %s to %s of CPU, want %.0f to %.0f", n, used, all, least, most)
			}
			if one.PortSearch != 0 {
				t.Errorf("%d samples in a port search that nobody made", one.PortSearch)
			}
			return
		}
	}
	t.Errorf("this process is not among %+v", got.Processes)
}
