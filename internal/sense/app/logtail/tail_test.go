package logtail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"golang.org/x/sys/unix"
)

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Bytes: 1 << 40, Wall: time.Minute})
}

func host() rootfs.Root { return rootfs.At("/", enough()) }

func put(t testing.TB, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func move(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		name   string
		before string // in the log at Open; "-": no log
		during func(t *testing.T, log string)
		want   []string
		notes  int
	}{
		{name: "grows", before: "old\n", during: func(t *testing.T, log string) { put(t, log, "a\n\nb\n") }, want: []string{"a", "", "b"}},
		{name: "quiet", before: "old\n"},
		{name: "begins inside a line", before: "old\nhal", during: func(t *testing.T, log string) { put(t, log, "f\na\n") }, want: []string{"a"}},
		{name: "ends inside a line", before: "old\n", during: func(t *testing.T, log string) { put(t, log, "a\nb") }, want: []string{"a", "b"}},
		{name: "appears", before: "-", during: func(t *testing.T, log string) { put(t, log, "a\n") }, want: []string{"a"}},
		{name: "never appears", before: "-"},
		{name: "rotated", before: "old\n", during: func(t *testing.T, log string) {
			put(t, log, "a\n")
			move(t, log, log+".1")
			put(t, log+".1", "b\n")
			put(t, log, "c\n")
		}, want: []string{"a", "b", "c"}},
		{name: "rotated away", before: "old\n", during: func(t *testing.T, log string) { put(t, log, "a\n"); move(t, log, log+".1") }, want: []string{"a"}},
		{name: "rotated three times", before: "old\n", during: func(t *testing.T, log string) {
			put(t, log, "a\n")
			move(t, log, log+".1")
			put(t, log, "b\n")
			move(t, log+".1", log+".2")
			move(t, log, log+".1")
			time.Sleep(20 * time.Millisecond) // file times are those of the last tick
			put(t, log, "c\n")
			move(t, log+".2", log+".3")
			move(t, log+".1", log+".2")
			move(t, log, log+".1")
			put(t, log, "d\n")
		}, want: []string{"a", "b", "c", "d"}},
		{name: "rotated and compressed twice", before: "old\n", during: func(t *testing.T, log string) {
			put(t, log, "a\n")
			move(t, log, log+".gone")
			os.Remove(log + ".gone")
			put(t, log+".2.gz", "x")
			put(t, log+".1.gz", "y")
			put(t, log, "d\n")
		}, want: []string{"a", "d"}, notes: 1},
		{name: "dated rotation", before: "old\n", during: func(t *testing.T, log string) {
			dated := strings.TrimSuffix(log, ".log") + "-20261021.log"
			put(t, log, "a\n")
			move(t, log, dated)
			put(t, log, "b\n")
		}, want: []string{"a", "b"}},
		{name: "truncated", before: "old line\n", during: func(t *testing.T, log string) { os.Truncate(log, 0); put(t, log, "a\n") }, want: []string{"a"}, notes: 1},
		{name: "truncated and grown beyond", before: "old\n", during: func(t *testing.T, log string) {
			os.Truncate(log, 0)
			put(t, log, "much longer than before\n")
		}, want: []string{"much longer than before"}, notes: 1},
		{name: "hole after truncation", before: "old\n", during: func(t *testing.T, log string) {
			os.Truncate(log, 0)
			os.Truncate(log, 1000)
			put(t, log, "a\nb\n")
		}, want: []string{"a", "b"}, notes: 1},
		{name: "binary", before: "", during: func(t *testing.T, log string) { put(t, log, "\xff\x00\xfe\n\x1b[2J\n") }, want: []string{"\xff\x00\xfe", "\x1b[2J"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "x.log")
			put(t, log+".1", "older\n")
			if c.before != "-" {
				put(t, log, c.before)
			}
			tail, err := Open(host(), log)
			if err != nil {
				t.Fatal(err)
			}
			if c.during != nil {
				c.during(t, log)
			}
			var got []string
			s, err := tail.Read(enough(), 1<<20, func(b []byte) { got = append(got, string(b)) })
			if err != nil || s.Scale != 1 || int(s.Lines) != len(c.want) || s.ReadBytes != s.GrownBytes || len(s.Notes) != c.notes {
				t.Errorf("%+v, %v", s, err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReadEstimates(t *testing.T) {
	log := filepath.Join(t.TempDir(), "x.log")
	put(t, log, "old\n")
	tail, err := Open(host(), log)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	const lines = 400_000
	for i := range lines {
		fmt.Fprintf(&b, "%08d %s\n", i, strings.Repeat("x", i%37))
	}
	put(t, log, b.String())
	var n, broken int64
	last, share := -1, 0.0
	s, err := tail.Read(enough(), 1<<20, func(line []byte) {
		n++
		var i int
		if _, err := fmt.Sscanf(string(line), "%08d", &i); err != nil || i <= last || len(line) != 9+i%37 {
			broken++
		}
		if at := tail.Share(); at < share || at > 1 {
			broken++
		} else {
			share = at
		}
		last = i
	})
	if err != nil || broken != 0 || !s.Estimated() || s.ReadBytes > 1<<20 || n != s.Lines {
		t.Errorf("%+v %v, %d broken", s, err, broken)
	}
	if est := float64(n) * s.Scale; est < 0.98*lines || est > 1.02*lines {
		t.Errorf("estimated %.0f of %d lines", est, lines)
	}
	if last < lines*95/100 {
		t.Errorf("last line seen is %d", last)
	}
}

// TestHugeLog: a sparse log of 5 GB with a line of 1 GB costs no more than the
// bound.
func TestHugeLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "x.log")
	tail, err := Open(host(), log)
	if err != nil {
		t.Fatal(err)
	}
	put(t, log, "first\n")
	if err := os.Truncate(log, 5<<30); err != nil {
		t.Skipf("SKIPPED WITHOUT SPARSE FILES: %v", err)
	}
	put(t, log, "\nlast\n")
	s, err := tail.Read(enough(), 4<<20, func(b []byte) {
		if len(b) > MaxLine {
			t.Errorf("line of %d bytes", len(b))
		}
	})
	if err != nil || s.ReadBytes > 4<<20 || s.GrownBytes != 5<<30+6 {
		t.Errorf("%+v %v", s, err)
	}
}

func TestLongLine(t *testing.T) {
	for _, size := range []int{MaxLine - 1, MaxLine, MaxLine + 1, bufferBytes, bufferBytes + 1, 3 * bufferBytes} {
		log := filepath.Join(t.TempDir(), "x.log")
		tail, _ := Open(host(), log)
		put(t, log, "a\n"+strings.Repeat("y", size)+"\nb\n")
		var got []int
		s, err := tail.Read(enough(), 1<<30, func(b []byte) { got = append(got, len(b)) })
		if d := cmp.Diff([]int{1, min(size, MaxLine), 1}, got); d != "" || err != nil {
			t.Errorf("size %d: %v %s", size, err, d)
		}
		if wantCut := size > MaxLine; (s.Cut == 1) != wantCut {
			t.Errorf("size %d: cut %d", size, s.Cut)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(n string) string { return filepath.Join(dir, n) }
	if err := unix.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Symlink("/dev/stderr", at("stderr"))
	os.Symlink("/proc/self/fd/1", at("fd"))
	os.Symlink("loop", at("loop"))
	for name, want := range map[string]string{
		at("fifo"):          "leads to a FIFO, not to a file: nothing can be read back",
		at("socket"):        "leads to a socket, not to a file: nothing can be read back",
		dir:                 "leads to a directory, not to a file: nothing can be read back",
		"/dev/null":         "leads to a character device, not to a file: nothing can be read back",
		at("stderr"):        "leads to the process's own standard output or error, not to a file: nothing can be read back",
		at("fd"):            "leads to the process's own standard output or error, not to a file: nothing can be read back",
		"/dev/stdout":       "leads to the process's own standard output or error, not to a file: nothing can be read back",
		at("loop"):          "open " + at("loop") + ": too many levels of symbolic links",
		at("fifo") + "/x":   "open " + at("fifo") + "/x: not a directory",
		dir + "/a\x00b.log": "open " + dir + "/a\x00b.log: invalid argument",
	} {
		tail, err := Open(host(), name)
		if err == nil {
			tail.Close()
			t.Errorf("%s was opened", name)
			continue
		}
		got := strings.TrimPrefix(Reason(err), name+" ")
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if os.Geteuid() != 0 {
		put(t, at("secret"), "x")
		os.Chmod(at("secret"), 0)
		if _, err := Open(host(), at("secret")); Reason(err) != "no permission to read "+at("secret") {
			t.Errorf("%v", err)
		}
	}
}

func TestReadStops(t *testing.T) {
	log := filepath.Join(t.TempDir(), "x.log")
	tail, _ := Open(host(), log)
	put(t, log, "a\n")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := tail.Read(budget.New(ctx, budget.Limits{}), 1<<20, func([]byte) {}); !errors.Is(err, context.Canceled) || Reason(err) == "" {
		t.Errorf("%v", err)
	}
}

func TestOpenInRoot(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(filepath.Join(dir, "var/log"), 0o755)
	os.Symlink("/var/log/real", filepath.Join(dir, "var/log/x.log"))
	put(t, filepath.Join(dir, "var/log/real"), "old\n")
	tail, err := Open(rootfs.At(dir, enough()), "/var/log/../log/../../../../var/log/x.log")
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "var/log/real"), "new\n")
	var got bytes.Buffer
	tail.Read(enough(), 1<<20, func(b []byte) { got.Write(b) })
	if got.String() != "new" {
		t.Errorf("%q", got.String())
	}
}

// FuzzSplit: whatever the bytes and however they are cut, the lines are those
// that bytes.Split gives.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("a\n\nb"), 3)
	f.Add(bytes.Repeat([]byte("0123456789\n"), 30000), 100)
	f.Fuzz(func(t *testing.T, b []byte, from int) {
		if from = max(0, min(from, len(b))); len(b) > 1<<20 {
			return
		}
		var want [][]byte
		if rest := b[from:]; len(rest) > 0 {
			want = bytes.Split(rest, []byte("\n"))
			if len(want[len(want)-1]) == 0 {
				want = want[:len(want)-1]
			}
		}
		var got int
		var at int64
		s := splitter{at: &at, b: enough(), line: func(line []byte) {
			if got >= len(want) {
				t.Fatal("too many lines")
			}
			w := want[got]
			if len(w) > 0 && w[0] == 0 {
				w = bytes.TrimLeft(w, "\x00")
			}
			if !bytes.Equal(line, w[:min(len(w), MaxLine)]) && len(want[got]) < MaxLine {
				t.Fatalf("line %d: %q, want %q", got, line, w)
			}
			got++
		}}
		if err := s.scan(bytes.NewReader(b), int64(from), int64(len(b)), false, true); err != nil || got != len(want) {
			t.Fatalf("%d lines, want %d: %v", got, len(want), err)
		}
		if s.read != int64(len(b)-from) || s.given != s.read {
			t.Errorf("read %d, given %d of %d", s.read, s.given, len(b)-from)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	log := filepath.Join(b.TempDir(), "x.log")
	text := strings.Repeat(strings.Repeat("x", 119)+"\n", 500_000)
	put(b, log, text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		tail := &Tail{root: host(), path: log}
		n := 0
		s, err := tail.Read(enough(), 1<<40, func(line []byte) { n++ })
		if err != nil || n != 500_000 || s.Lines != 500_000 {
			b.Fatal(n, err)
		}
	}
}
