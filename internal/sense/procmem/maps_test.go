package procmem

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/budget"
)

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]Mapping{
		"7f0c2e6ac000-7f0c2e801000 r-xp 00026000 fd:01 1185                       /usr/lib/libc.so.6": {Start: 0x7f0c2e6ac000, End: 0x7f0c2e801000, Offset: 0x26000, Executable: true, Device: "fd:01", Inode: 1185, Path: "/usr/lib/libc.so.6"},
		"7f00-8f00 rw-s 00000000 00:01 9 /dev/zero (deleted)\n":                                       {Start: 0x7f00, End: 0x8f00, Shared: true, Device: "00:01", Inode: 9, Path: "/dev/zero (deleted)"},
		"7f00-8f00 rw-p 00000000 00:00 0":                                                             {Start: 0x7f00, End: 0x8f00, Device: "00:00"},
		`7f00-8f00 r--p 00000000 00:00 5 /a b\012c`:                                                   {Start: 0x7f00, End: 0x8f00, Device: "00:00", Inode: 5, Path: "/a b\nc"},
	} {
		if m, ok := ParseMapping([]byte(line)); !ok || m != want {
			t.Errorf("%s: %+v %v", line, m, ok)
		}
	}
	for _, line := range []string{"", "7f00-8f00", "8f00-7f00 r--p 0 00:00 5", "x-8f00 r--p 0 00:00 5", "7f00 r--p 0 00:00 5", "7f00-8f00 r 0 00:00 5"} {
		if m, ok := ParseMapping([]byte(line)); ok {
			t.Errorf("%q is read as %+v", line, m)
		}
	}
}

func TestLoaded(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := budget.New(context.Background(), budget.Limits{})
	m, err := Loaded(b, "/proc", os.Getpid(), func(path string) (ok, done bool) { return strings.HasSuffix(exe, path), true })
	if err != nil || m.Start == 0 || m.Path != exe {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := Loaded(b, "/proc", os.Getpid(), func(string) (ok, done bool) { return false, false }); !errors.Is(err, ErrNoMapping) {
		t.Error(err)
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add([]byte("7f00-8f00 rw-s 00000000 00:01 9 /dev/zero (deleted)"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if m, ok := ParseMapping(line); ok && m.End <= m.Start {
			t.Error(m)
		}
	})
}
