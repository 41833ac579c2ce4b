package budgettest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// failures is a test that only notes why it fails.
type failures struct {
	testing.TB
	why []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.why = append(f.why, fmt.Sprintf(format, args...))
}

var sink []byte

func TestWithin(t *testing.T) {
	for name, x := range map[string]struct {
		cost Cost
		f    func()
		want string
	}{
		"little":      {Cost{1, 1 << 20, time.Minute}, func() { sink = make([]byte, 1<<19) }, ""},
		"by its size": {Cost{1 << 20, 0, time.Minute}, func() { sink = make([]byte, 3<<20) }, ""},
		"much":        {Cost{1, 1 << 20, time.Minute}, func() { sink = make([]byte, 2<<20) }, "allocate"},
		"much that is let go of": {Cost{1, 1 << 20, time.Minute}, func() {
			for range 64 {
				sink = make([]byte, 64<<10)
			}
		}, "allocate"},
		"long": {Cost{1, 1 << 20, 10 * time.Millisecond}, func() {
			for end := processCPU() + 20*time.Millisecond; processCPU() < end; {
			}
		}, "CPU time"},
		"waits": {Cost{1, 1 << 20, 10 * time.Millisecond}, func() { time.Sleep(30 * time.Millisecond) }, ""},
	} {
		f := failures{TB: t}
		Within(&f, 4, x.cost, x.f)
		if got := strings.Join(f.why, "; "); x.want == "" && got != "" || !strings.Contains(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

func TestPeak(t *testing.T) {
	for name, mb := range map[string]int{"little": 1, "much [of it]": 200} {
		t.Run(name, func(t *testing.T) {
			used := Peak(t, func() []string { return []string{"a", name} }, func(args []string) {
				if len(args) != 2 || args[1] != name {
					t.Fatal(args)
				}
				b := make([]byte, mb<<20)
				for i := range b {
					b[i] = 1
				}
				time.Sleep(50 * time.Millisecond)
				fmt.Println("took", len(b)>>20)
			})
			if used.Peak < int64(mb)<<20 || used.Peak > int64(mb+100)<<20 || used.Wall < 50*time.Millisecond || !strings.Contains(used.Output, fmt.Sprint("took ", mb)) {
				t.Errorf("%+v for %d MB", used, mb)
			}
		})
	}
}
