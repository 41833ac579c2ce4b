// Package stalltest measures what the machine takes from a test: CPUs that go away, and
// how long a disk needs for what it is given.
//
// In: a test. Out: of a part of its time, for how long a thread was kept from running,
// and the slowest write. A limit on how long a program may take is the program's own
// part, and on top of it what was measured while it ran.
//
// It is for tests only.
package stalltest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/osthread"
)

// Meter measures, from Start until its test ends.
type Meter struct {
	disk    track
	threads []*track // one for each CPU
}

// Start begins to measure; the disk is that of the test's temporary directories.
func Start(tb testing.TB) *Meter {
	m := &Meter{}
	stop, name := make(chan struct{}), filepath.Join(tb.TempDir(), "written")
	var all sync.WaitGroup
	tb.Cleanup(func() { close(stop); all.Wait() })
	all.Go(func() {
		m.disk.run(stop, 0, func(time.Time) time.Time {
			time.Sleep(10 * time.Millisecond) // the disk is the test's
			from := time.Now()
			if err := write(name); err != nil {
				tb.Error(err)
			}
			return from
		})
	})
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		tb.Fatal(err)
	}
	for cpu := range 64 * len(cpus) {
		if !cpus.IsSet(cpu) {
			continue
		}
		k := &track{}
		m.threads = append(m.threads, k)
		all.Go(func() {
			_ = osthread.Own(func() error { // it ends with its CPU
				var own unix.CPUSet
				own.Set(cpu)
				if err := unix.SchedSetaffinity(0, &own); err != nil {
					tb.Error(err)
				}
				nap := unix.NsecToTimespec(int64(time.Millisecond))
				k.run(stop, 2*time.Millisecond, func(last time.Time) time.Time {
					_ = unix.Nanosleep(&nap, nil)
					return last // it is kept from running between naps, too
				})
				return nil
			})
		})
	}
	return m
}

// write puts a file on the disk, as programs do that want to find it there.
func write(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return err
	}
	return f.Sync()
}

// Between gives for how long a thread was kept from running on the CPU that was away for
// longest, and the slowest write that was under way, between two moments.
func (m *Meter) Between(from, to time.Time) (away, slowest time.Duration) {
	for _, s := range m.disk.between(from, to) {
		slowest = max(slowest, s.to.Sub(s.from))
	}
	for _, k := range m.threads {
		var sum time.Duration
		for _, s := range k.between(from, to) {
			begin, end := s.from, s.to
			if begin.Before(from) {
				begin = from
			}
			if end.After(to) {
				end = to
			}
			sum += end.Sub(begin)
		}
		away = max(away, sum)
	}
	return away, slowest
}

// track is what one thing took that is done again and again.
type track struct {
	mu    sync.Mutex
	until time.Time // all before is known
	long  []span
}

type span struct{ from, to time.Time }

// run does it until stop, and notes what took longer than usual. do gets the moment at which it
// was done last, and gives when it began.
func (k *track) run(stop chan struct{}, usual time.Duration, do func(time.Time) time.Time) {
	for last := time.Now(); ; {
		from := do(last)
		last = time.Now()
		k.mu.Lock()
		if k.until = last; last.Sub(from) > usual {
			k.long = append(k.long, span{from, last})
		}
		k.mu.Unlock()
		select {
		case <-stop:
			return
		default:
		}
	}
}

// between gives what was under way between two moments, and waits for its end.
func (k *track) between(from, to time.Time) (list []span) {
	for ; ; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		if k.until.Before(to) {
			k.mu.Unlock()
			continue
		}
		for _, s := range k.long {
			if s.from.Before(to) && s.to.After(from) {
				list = append(list, s)
			}
		}
		k.mu.Unlock()
		return list
	}
}
