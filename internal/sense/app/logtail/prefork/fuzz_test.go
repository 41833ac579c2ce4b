package prefork

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzProc reads files of /proc of a process that is called as it likes.
func FuzzProc(f *testing.F) {
	f.Add([]byte("7 (nginx: (x) ) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 0 0"), []byte("cpu 1\nbtime 1800000000\n"), []byte("8 9 x -1"), []byte("Name:\tx\nNSpid:\t7\t1\n"), []byte("nginx: master process\x00\x00"))
	f.Add([]byte("7 ("), []byte("btime "), []byte{}, []byte("NSpid:"), []byte{0})
	proc := f.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "7", "task", "7"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, stat, boot, children, status, cmdline []byte) {
		for name, text := range map[string][]byte{"7/stat": stat, "stat": boot, "7/task/7/children": children, "7/status": status, "7/cmdline": cmdline} {
			if err := os.WriteFile(filepath.Join(proc, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		budgettest.Within(t, len(stat)+len(boot)+len(children)+len(status)+len(cmdline), budgettest.Usual, func() {
			if at, err := Started(proc, 7); err == nil && at.IsZero() {
				t.Error("it was started at no time")
			}
			if pids, ok := Children(proc, 7); !ok || len(pids) > len(children) {
				t.Errorf("%v of %q", pids, children)
			}
			if n := Numbers(proc, 7); len(n) > len(status) {
				t.Errorf("%v of %q", n, status)
			}
			if title := Title(proc, 7); len(title) > len(cmdline) || len(Args(proc, 7)) > len(cmdline) {
				t.Errorf("%q of %q", title, cmdline)
			}
		})
	})
}
