package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// fill stores what two endpoints did in each of some minutes, a request every six
// seconds, and a finding a minute.
func fill(t testing.TB, s *Store, c *clock, tr *traffic, from time.Time, minutes, rps int) (want []Request) {
	t.Helper()
	for m := range minutes {
		at := from.Add(time.Duration(m) * time.Minute)
		c.set(at)
		for range rps * 60 {
			var r Request
			tr.next(&r, at.UnixNano()+int64(tr.rng.IntN(60e9)))
			s.AddRequest(&r)
			want = append(want, stored(r))
		}
		for svc := range 2 {
			sec := tr.second(svc, at.Unix(), 2)
			s.AddSecond(&sec)
		}
		if m%5 == 0 {
			// A request that began long before its segment.
			var r Request
			tr.next(&r, at.Add(-7*time.Minute).UnixNano()+1000)
			s.AddRequest(&r)
			want = append(want, stored(r))
		}
		must(t, s.Sync())
		if m%5 == 4 {
			must(t, s.keep())
		}
	}
	return want
}

func count(t testing.TB, dir string, k kind) int {
	t.Helper()
	list, err := segmentsIn(t, dir, k)
	must(t, err)
	return len(list)
}

// An hour that is over becomes one file of each kind, and nothing is lost or told
// twice, in order.
func TestCompaction(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for _, rps := range []int{1, 100} { // rewritten; copied
		t.Run(fmt.Sprint(rps), func(t *testing.T) {
			dir := t.TempDir()
			c := &clock{t: noon}
			s := openAt(t, dir, Options{}, c)
			tr := newTraffic(2)
			minutes := 70
			if rps > 1 {
				minutes = 11
			}
			from := noon.Add(time.Duration(60-minutes+5) * time.Minute) // over the hour
			want := fill(t, s, c, tr, from, minutes, rps)
			r, err := OpenReader(dir)
			must(t, err)
			before, err := r.Endpoints(Query{})
			must(t, err)
			sameRequests(t, readAll(t, dir, Query{}), want)
			c.set(noon.Add(2 * time.Hour))
			must(t, s.Sync())
			must(t, s.keep())
			for _, k := range []kind{kindRequests, kindSeconds, kindSeconds10, kindMinutes5} {
				// The first stretch and the one that began at the hour, at most; a late
				// request may make a file begin in the hour before.
				if n := count(t, dir, k); n > 4 {
					t.Errorf("%s: %d files", k, n)
				}
			}
			sameRequests(t, readAll(t, dir, Query{}), want)
			after, err := r.Endpoints(Query{})
			must(t, err)
			for i := range before {
				if before[i].Endpoint.Requests != after[i].Endpoint.Requests || before[i].Endpoint.Total.Quantile(0.99) != after[i].Endpoint.Total.Quantile(0.99) {
					t.Errorf("endpoint %d: %+v, before %+v", i, after[i].Endpoint, before[i].Endpoint)
				}
			}
			must(t, s.Close())
			sameRequests(t, readAll(t, dir, Query{}), want)
		})
	}
}

// A writer that is killed between two steps of merging or of making a file leaves
// both what was and what came of it: nothing is reported twice.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	tr := newTraffic(3)
	want := fill(t, s, c, tr, noon, 20, 1)
	must(t, s.Sync())

	keepCopy := func(k kind) (copies map[string][]byte) {
		copies = map[string][]byte{}
		list, err := segmentsIn(t, dir, k)
		must(t, err)
		for _, seg := range list {
			data, err := os.ReadFile(seg.path)
			must(t, err)
			copies[seg.path] = data
		}
		logs, err := logsIn(t, dir)
		must(t, err)
		for _, l := range logs {
			data, err := os.ReadFile(l.path)
			must(t, err)
			copies[l.path] = data
		}
		return copies
	}
	small := keepCopy(kindRequests)
	must(t, s.Close()) // the log becomes a file
	restore := func() {
		for path, data := range small {
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, data, 0o600))
		}
	}
	restore()
	must(t, os.WriteFile(filepath.Join(dir, "requests", "2026-11-22", newPrefix+"x.parquet"), []byte("begun"), 0o600))
	sameRequests(t, readAll(t, dir, Query{}), want)

	c.set(noon.Add(3 * time.Hour))
	s = openAt(t, dir, Options{}, c)
	must(t, s.keep())
	restore()
	sameRequests(t, readAll(t, dir, Query{}), want)
	must(t, s.Close())
	s = openAt(t, dir, Options{}, c)
	must(t, s.keep())
	must(t, s.Close())
	sameRequests(t, readAll(t, dir, Query{}), want)
	if n := count(t, dir, kindRequests); n != 2 { // what began before noon, and after
		t.Errorf("%d files, want 2", n)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*", newPrefix+"*"))
	if must(t, err); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestRetention(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{MaxAge: 2 * time.Hour}, c)
	tr := newTraffic(4)
	fill(t, s, c, tr, noon, 130, 2)
	for m := range 20 {
		o := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon.Add(time.Duration(m*10) * time.Minute), Seconds: 10}}
		must(t, s.AddObservation(o, nil))
	}
	must(t, s.Sync())
	r, err := OpenReader(dir)
	must(t, err)

	// By age.
	c.set(noon.Add(3*time.Hour + 30*time.Minute))
	must(t, s.Sync())
	must(t, s.keep())
	for _, req := range readAll(t, dir, Query{}) {
		if req.StartNS < noon.Add(45*time.Minute).UnixNano() { // the file of an hour goes as a whole
			t.Fatalf("request of %v is still there", time.Unix(0, req.StartNS))
		}
	}
	windows, err := r.Observations(time.Time{}, time.Time{})
	must(t, err)
	if len(windows) != 11 || windows[0].Start.Before(noon.Add(90*time.Minute)) {
		t.Errorf("%d windows are left, the first of %v", len(windows), windows[0].Start)
	}

	// By size: sums outlive requests, and the youngest are left.
	before := s.Stats()
	s.opt.MaxBytes = before.Bytes / 2
	must(t, s.keep())
	after := s.Stats()
	if after.Bytes > s.opt.MaxBytes || after.Removed <= before.Removed {
		t.Errorf("%d bytes are left of at most %d, %d files removed", after.Bytes, s.opt.MaxBytes, after.Removed)
	}
	if count(t, dir, kindMinutes5) == 0 {
		t.Error("the sums of five minutes are gone")
	}
	// The open log stays whatever the limits are.
	var req Request
	tr.next(&req, c.now().UnixNano())
	s.AddRequest(&req)
	must(t, s.Sync())
	s.opt.MaxBytes = 1
	must(t, s.keep())
	if got := readAll(t, dir, Query{}); len(got) != 1 {
		t.Errorf("%d requests are left, want that of the open log", len(got))
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "2026*"))
	if must(t, err); len(left) > 0 {
		t.Errorf("folders of days are left: %v", left)
	}
	must(t, s.Close())
}

// A clock that jumps makes nothing older, and all can be read. What was stored
// while it was years ahead does not outlive what came after it.
func TestClockJumps(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	s.elapsed = func() time.Duration { return time.Hour }
	tr := newTraffic(5)
	var want []Request
	for _, jump := range []time.Duration{0, 20 * 365 * 24 * time.Hour, -time.Hour, -48 * time.Hour, 0, -60 * 365 * 24 * time.Hour} {
		want = append(want, fill(t, s, c, tr, noon.Add(jump), 7, 1)...)
		sameRequests(t, readAll(t, dir, Query{}), want)
	}
	c.set(noon)
	must(t, s.Sync())
	must(t, s.keep())
	sameRequests(t, readAll(t, dir, Query{}), slices.DeleteFunc(want, func(r Request) bool { return r.StartNS < noon.Add(-8*24*time.Hour).UnixNano() }))
	c.set(noon.Add(8 * 24 * time.Hour))
	s.elapsed = func() time.Duration { return 8 * 24 * time.Hour }
	must(t, s.Sync())
	must(t, s.keep())
	if got := readAll(t, dir, Query{To: noon.Add(7 * 24 * time.Hour)}); len(got) != 0 {
		t.Errorf("%d requests are left that are too old", len(got))
	}
	// What is dated twenty years ahead goes when it is too much: it was written
	// before what came later.
	late := fill(t, s, c, tr, noon.Add(8*24*time.Hour), 7, 1)
	must(t, s.keep())
	s.opt.MaxBytes = s.Stats().Bytes - 1
	must(t, s.keep())
	for range 20 {
		if list := readAll(t, dir, Query{From: noon.Add(9 * 24 * time.Hour)}); len(list) == 0 {
			break
		}
		s.opt.MaxBytes -= 8 << 10
		must(t, s.keep())
	}
	sameRequests(t, readAll(t, dir, Query{}), late)
	must(t, s.Close())
}
