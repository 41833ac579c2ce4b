package ship

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// Whatever fails however, and whenever all is begun anew, each record arrives once
// and in order.
func TestEveryRecordOnce(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFake(seed)
			f.faults = true
			rng := rand.New(rand.NewPCG(seed, 1))
			h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
			n, seconds := 0, 0
			midnight := int64(20_000) * 86_400 * 1e9
			for range 4 {
				h.open(300 * time.Millisecond)
				for range 15 {
					for range rng.IntN(200) {
						// About midnight, not all in order.
						start := midnight + int64(n-1200)*1e6
						if rng.IntN(20) == 0 {
							start += rng.Int64N(1e9)
						}
						r := numbered(n, start)
						h.store.AddRequest(&r)
						n++
					}
					for range rng.IntN(4) {
						s := numberedSecond(seconds, 1_700_000_000+int64(seconds))
						h.store.AddSecond(&s)
						seconds++
					}
					if err := h.store.Sync(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(rng.Int64N(5e6)))
				}
				h.close()
			}
			f.set(func() { f.faults = false })
			h.open(time.Hour)
			f.arrived(t, fleet.Requests, n)
			f.arrived(t, fleet.Seconds, seconds)
			h.close()
			f.check(t, fleet.Requests, 0, n)
			f.check(t, fleet.Seconds, 0, seconds)
			if rest := waiting(folder(filepath.Join(h.dir, shipDir, "fake"))); len(rest) > 2 {
				t.Errorf("%d logs are still there: %v", len(rest), rest)
			}
			t.Logf("%d requests, %d seconds, %d attempts, %d batches twice", n, seconds, f.sends, f.again)
		})
	}
}

// While the target is away for long, logs become files, files are merged and
// removed: nothing is lost, and it goes on in order.
func TestOutage(t *testing.T) {
	f := newFake(1)
	f.down = true
	h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
	h.open(30 * time.Millisecond)
	n := 0
	for range 60 {
		for range 200 {
			r := numbered(n, time.Now().UnixNano())
			h.store.AddRequest(&r)
			n++
		}
		if err := h.store.Sync(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	logs := waiting(folder(filepath.Join(h.dir, shipDir, "fake")))
	if len(logs) < 10 {
		t.Errorf("only %d logs wait", len(logs))
	}
	status := h.shipper.Status()[0]
	if status.Error != errDown.Error() || status.Failures == 0 || status.Bytes == 0 || status.Records < uint64(n)/4 || status.Behind <= 0 {
		t.Errorf("status: %+v", status)
	}
	// All of the store itself may go meanwhile.
	_ = os.RemoveAll(filepath.Join(h.dir, "requests")) // fails when a file is just being made
	f.set(func() { f.down = false })
	f.arrived(t, fleet.Requests, n)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && (status.Error != "" || status.Bytes > 0); time.Sleep(time.Millisecond) {
		status = h.shipper.Status()[0]
	}
	h.close()
	f.check(t, fleet.Requests, 0, n)
	if status.Sent != uint64(n) || status.Error != "" || status.GaveUp != 0 {
		t.Errorf("status at the end: %+v", status)
	}
	if got := h.lines(); strings.Count(got, "waits on disk") != 1 || strings.Count(got, "takes records again") != 1 {
		t.Errorf("said:\n%s", got)
	}
	if len(f.hosts) == 0 || f.hosts[0].ID != h.shipper.ID() {
		t.Errorf("hosts: %v", f.hosts)
	}
}

// What is too much is given up, the oldest first, counted and said.
func TestGivenUp(t *testing.T) {
	f := newFake(1)
	f.down = true
	h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
	h.opt.Buffer = 100_000
	h.open(20 * time.Millisecond)
	n := 0
	for range 60 {
		for range 200 {
			r := numbered(n, time.Now().UnixNano())
			h.store.AddRequest(&r)
			n++
		}
		if err := h.store.Sync(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	deadline := time.Now().Add(10 * time.Second)
	tooMuch := func() bool {
		var total int64
		for _, f := range waiting(folder(filepath.Join(h.dir, shipDir, "fake"))) {
			total += f.bytes
		}
		return total > h.opt.Buffer || h.shipper.Status()[0].GaveUp == 0
	}
	for tooMuch() && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	f.set(func() { f.down = false })
	deadline = time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if s := h.shipper.Status()[0]; s.Records == 0 && s.Bytes == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	h.close()
	gone := int(h.shipper.Status()[0].GaveUp)
	if gone == 0 || gone >= n {
		t.Fatalf("%d of %d given up", gone, n)
	}
	f.check(t, fleet.Requests, gone, n)
	if got := h.lines(); !strings.Contains(got, "gave up ") {
		t.Errorf("said:\n%s", got)
	}
	// It is not forgotten.
	h.open(time.Hour)
	if again := int(h.shipper.Status()[0].GaveUp); again != gone {
		t.Errorf("%d given up after a new start, %d before", again, gone)
	}
	h.close()
}

// What there is when a target is first given is not sent; the ID stays.
func TestFirstGiven(t *testing.T) {
	f := newFake(1)
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		r := numbered(n, time.Now().UnixNano())
		st.AddRequest(&r)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	h := &history{t: t, dir: dir, opt: quick(f)}
	h.open(time.Hour)
	id := h.shipper.ID()
	if got := h.lines(); !strings.Contains(got, "what was recorded before is not sent") {
		t.Errorf("said: %q", got)
	}
	for n := 10; n < 20; n++ {
		r := numbered(n, time.Now().UnixNano())
		h.store.AddRequest(&r)
	}
	if err := h.store.Sync(); err != nil {
		t.Fatal(err)
	}
	f.arrived(t, fleet.Requests, 10)
	h.close()
	f.check(t, fleet.Requests, 10, 20)
	h.open(time.Hour)
	if got := h.lines(); strings.Count(got, "what was recorded before is not sent") != 1 {
		t.Errorf("said: %q", got)
	}
	if h.shipper.ID() != id {
		t.Errorf("another ID: %s, %s", id, h.shipper.ID())
	}
	h.close()
	f.check(t, fleet.Requests, 10, 20)
}

// lingering is a target that small batches are expensive for.
type lingering struct{ *fake }

func (lingering) Linger(s fleet.Stream) time.Duration {
	if s == fleet.Seconds {
		return time.Hour
	}
	return 0
}

// Seconds wait for others as long as the target wants, other streams do not, and
// nothing waits for what will not come any more.
func TestTargetSaysHowLongSecondsWait(t *testing.T) {
	f := newFake(1)
	h := &history{t: t, dir: t.TempDir(), opt: quick(lingering{f})}
	h.opt.timeout = 10 * time.Second
	h.open(time.Hour)
	for n := range 3 {
		s := numberedSecond(n, 1_700_000_000+int64(n))
		h.store.AddSecond(&s)
		r := numbered(n, time.Now().UnixNano())
		h.store.AddRequest(&r)
		if err := h.store.Sync(); err != nil {
			t.Fatal(err)
		}
		f.arrived(t, fleet.Requests, n+1)
	}
	if n := f.count(fleet.Seconds); n != 0 {
		t.Errorf("%d seconds did not wait", n)
	}
	for end := time.Now().Add(5 * time.Second); h.shipper.Status()[0].Records != 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v: no three seconds wait", h.shipper.Status()[0])
		}
	}
	h.close()
	f.check(t, fleet.Seconds, 0, 3)
	if len(f.batches[fleet.Seconds]) != 1 {
		t.Errorf("%d batches of seconds, want 1", len(f.batches[fleet.Seconds]))
	}
}

// A target that cannot tell what it has relies on what is noted here.
func TestNoMark(t *testing.T) {
	f := newFake(1)
	f.noMark = true
	h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
	for n := range 5 {
		h.open(time.Hour)
		r := numbered(n, time.Now().UnixNano())
		h.store.AddRequest(&r)
		if err := h.store.Sync(); err != nil {
			t.Fatal(err)
		}
		f.arrived(t, fleet.Requests, n+1)
		h.close()
	}
	f.check(t, fleet.Requests, 0, 5)
}

// A directory that was put back from a copy would give positions a second time.
func TestPutBackFromCopy(t *testing.T) {
	f := newFake(1)
	f.got[fleet.Requests] = []arrival{{at(1000, 1), 0}}
	h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
	h.open(time.Hour)
	for end := time.Now().Add(10 * time.Second); !strings.Contains(h.lines(), "put back from a copy") && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	h.close()
	if got := h.lines(); strings.Count(got, "put back from a copy") != 1 {
		t.Errorf("said:\n%s", got)
	}
}

// Each of several targets has a place of its own, and one that hangs does not hold
// up another.
func TestSeveralTargets(t *testing.T) {
	one, two := newFake(1), newFake(2)
	h := &history{t: t, dir: t.TempDir(), opt: quick(one)}
	h.opt.Targets = append(h.opt.Targets, Destination{Target: two, Name: "two", Title: "two://"})
	two.down = true
	h.open(time.Hour)
	for n := range 50 {
		r := numbered(n, time.Now().UnixNano())
		h.store.AddRequest(&r)
	}
	if err := h.store.Sync(); err != nil {
		t.Fatal(err)
	}
	one.arrived(t, fleet.Requests, 50)
	if two.count(fleet.Requests) != 0 {
		t.Error("a target that is down has records")
	}
	two.set(func() { two.down = false })
	two.arrived(t, fleet.Requests, 50)
	h.close()
	h.opt.Targets = h.opt.Targets[:1]
	if _, _, err := Prepare(h.dir, Options{Targets: []Destination{{Name: "a", Title: "a"}, {Name: "a", Title: "b"}}}); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("twice the same: %v", err)
	}
}

// While the disk is full, what is recorded is lost here, and counted by the store;
// what was durable arrives, once, and what comes when there is room again does too.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: a full disk needs root, to mount a small tmpfs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Skipf("SKIP: mount tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	f := newFake(1)
	h := &history{t: t, dir: dir, opt: quick(f)}
	h.open(time.Hour)
	n := 0
	add := func(records int) error {
		for range records {
			r := numbered(n, time.Now().UnixNano())
			h.store.AddRequest(&r)
			n++
		}
		return h.store.Sync()
	}
	if err := add(100); err != nil {
		t.Fatal(err)
	}
	f.arrived(t, fleet.Requests, 100)
	f.set(func() { f.down = true })
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 4<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	lost := n
	for range 3 {
		if err := add(2000); err == nil {
			t.Fatal("the disk takes more than it has room for")
		}
	}
	// The cursor has its place on the disk already.
	f.set(func() { f.down = false })
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	back := n
	if err := add(300); err != nil {
		t.Fatal(err)
	}
	f.arrived(t, fleet.Requests, 400)
	h.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, a := range f.got[fleet.Requests] {
		want := i
		if i >= lost {
			want = back + i - lost
		}
		if a.seq != want {
			t.Fatalf("record %d is number %d, want %d", i, a.seq, want)
		}
	}
	if len(f.got[fleet.Requests]) != 400 {
		t.Errorf("%d records", len(f.got[fleet.Requests]))
	}
}
