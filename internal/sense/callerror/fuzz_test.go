package callerror

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzTarget: whatever a process names in a call that fails, and whatever its
// descriptors are called, is reported in one line that a terminal can print.
func FuzzTarget(f *testing.F) {
	f.Add(uint32(2), []byte("/tmp/a\x00junk"), "/tmp", "pos:\t0\nmnt_id:\t21\n", uint64(3))
	f.Add(uint32(257), []byte("relative\x1b[2J\n"), "/a\nb (deleted)", "mnt_id:\t99999999999999999999\n", uint64(1<<63))
	proc := f.TempDir()
	dir := filepath.Join(proc, "7")
	if err := os.MkdirAll(filepath.Join(dir, "fdinfo"), 0o700); err != nil {
		f.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, nr uint32, name []byte, link, info string, fd uint64) {
		n := strconv.Itoa(int(int32(fd)))
		for _, at := range []string{"cwd", "fd/" + n} {
			os.Remove(filepath.Join(dir, at))
			if strings.IndexByte(link, 0) < 0 && link != "" && len(link) < 4000 {
				if err := os.Symlink(link, filepath.Join(dir, at)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "fdinfo", n), []byte(info), 0o600); err != nil {
			t.Fatal(err)
		}
		budgettest.Within(t, len(name)+len(link)+len(info), budgettest.Usual, func() {
			w := &Watcher{proc: proc}
			val := errorCount{Args: [2]uint64{fd, fd}}
			copy(val.Path[:], name)
			got := w.target(&errorKey{TGID: 7, NR: nr, Error: nr}, &val)
			for _, text := range []string{got.path, callName(nr), errorName(nr), text(name), device(nr)} {
				if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) || !utf8.ValidString(text) {
					t.Errorf("%q", text)
				}
			}
		})
		os.Remove(filepath.Join(dir, "fdinfo", n))
		os.Remove(filepath.Join(dir, "fd", n))
	})
}
