package interpreter

import (
	"testing"

	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzMaps reads the memory map of a process, which may map files of any name.
func FuzzMaps(f *testing.F) {
	f.Add([]byte("7f00-7f01 r-xp 0 8:1 9 /usr/lib/libpython3.11.so.1.0\n7f01-7f02 r-xp 0 8:1 9 /usr/lib/jvm/lib/server/libjvm.so\n"), []byte("7f00-7f01 r-xp 0 8:1 9 /usr/bin/node\n"))
	f.Add([]byte("/"), []byte("\n/\n//perl \n[heap]"))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		budgettest.Within(t, len(one)+len(other), budgettest.Usual, func() {
			met := map[string]bool{}
			c := interpreterconfig.NoInterpreters()
			enable(&c, one, met)
			before := c
			enable(&c, one, met) // another process of the same files
			if c != before {
				t.Errorf("%+v, then %+v", before, c)
			}
			enable(&c, other, met)
			enable(&c, []byte("7f00-7f01 r-xp 0 8:1 9 /opt/lib/libjvm.so\n"), met)
			if c.Hotspot.Disabled {
				t.Error("a JVM was not recognized")
			}
		})
	})
}
