package store

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slowray/slowray/internal/safefile/safefiletest"
)

// A directory of another user, or one that is reached through his, is refused in one
// line, and nothing is made there.
func TestDirectoryOfOthers(t *testing.T) {
	s := safefiletest.NewStage(t, "sub")
	at := func(name string) string { return filepath.Join(s.Dir, name) }
	s.Do(func() {
		os.Mkdir(at("empty"), 0o700)
		os.Mkdir(at("open"), 0o777)
		os.Symlink(s.Outside, at("link"))
		os.Symlink(filepath.Join(s.Outside, "missing"), at("dangling"))
	})
	for _, name := range []string{"empty", "open", "link", "link/sub", "dangling", "missing", "empty/missing"} {
		st, err := Open(at(name), Options{})
		if err == nil {
			st.Close()
		}
		if text := oneLineOf(t, err); !strings.Contains(text, "belongs to user 65534: somebody else can change it") {
			t.Errorf("%s: %s", name, text)
		}
	}
	s.Unharmed(t)
	if left, _ := os.ReadDir(at("empty")); len(left) > 0 {
		t.Errorf("%v was made", left)
	}
}

// Whatever is swapped for a link, another directory, a file or a FIFO, and whoever is
// given the directory, before any step of a writer: nothing elsewhere changes.
func TestRace(t *testing.T) {
	files := []string{"history/lock", "history/open/requests.1.log", "history/open/seconds.1.log", "history/open/requests.2.log"}
	s := safefiletest.NewSharedStage(t, []string{"history/open", "history/requests/2026-11-22", "history/seconds"}, files)
	dir := filepath.Join(s.Dir, "history")
	names := []string{dir, filepath.Join(dir, "open"), filepath.Join(dir, "requests"), filepath.Join(dir, "requests/2026-11-22"), filepath.Join(dir, "seconds")}
	for _, name := range files {
		names = append(names, filepath.Join(s.Dir, name))
	}
	tr := newTraffic(1)
	const steps = 6
	var refused, survived int
	for n := range safefiletest.Tries() {
		s.Clear(dir)
		moment, often := rand.IntN(steps+1), rand.IntN(3) == 0
		taken := false
		step := func(i int) {
			if i != moment && (!often || rand.IntN(2) == 0) {
				return
			}
			taken = true
			if i == 0 { // nothing is there yet
				s.Do(func() {
					if os.Mkdir(dir, 0o777) == nil && rand.IntN(2) == 0 {
						os.Mkdir(filepath.Join(dir, "open"), 0o777)
						os.Symlink(filepath.Join(s.Outside, "file"), filepath.Join(dir, lockName))
						os.Symlink(filepath.Join(s.Outside, "file"), filepath.Join(dir, logPath(kindRequests, 1)))
						return
					}
					s.Swap(dir)
				})
				return
			}
			s.Seize(dir, names...)
		}
		told := func(err error) {
			if err != nil {
				refused++
				oneLineOf(t, err)
			}
		}
		c := &clock{t: noon}
		step(0)
		st, err := open(dir, Options{}, c.now)
		if told(err); err == nil {
			if info, err := os.Lstat(dir); !taken && (err != nil || info.Sys().(*syscall.Stat_t).Uid != 0) {
				t.Errorf("try %d: the directory is not root's: %v", n, err)
			}
			add := func() {
				var r Request
				tr.next(&r, c.now().UnixNano())
				st.AddRequest(&r)
				sec := tr.second(0, c.now().Unix(), 1)
				st.AddSecond(&sec)
			}
			add()
			step(1)
			told(st.Sync())
			step(2)
			add()
			told(st.Sync())
			st.streams[kindRequests].rotate()
			st.streams[kindSeconds].rotate()
			step(3)
			told(st.keep())
			step(4)
			add()
			told(st.Sync())
			step(5)
			told(st.Close())
			survived++
		}
		s.Unharmed(t)
		if t.Failed() {
			t.Fatalf("in try %d, at step %d", n, moment)
		}
	}
	if tries := safefiletest.Tries(); refused < tries/4 || survived < tries/2 {
		t.Errorf("of %d tries %d were refused and %d got as far as to write", tries, refused, survived)
	}
}
