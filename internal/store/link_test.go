package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slowray/slowray/internal/observe"
)

// linked reads all requests of the logs in a directory, by log and record.
func linked(t *testing.T, dir string, limit int64) map[uint64][]Request {
	t.Helper()
	all := map[uint64][]Request{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var d Decoder
	for _, f := range files {
		stream, number, ok := ParseLogName(f.Name())
		if !ok || stream != "requests" {
			continue
		}
		l, err := OpenLog(homeAt(t, dir).Root, f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var frame []byte
		for {
			if frame, err = l.Next(frame[:0], limit); err != nil {
				break
			}
			d.Requests(frame, 0, 1<<30, func(_ int, r *Request) bool {
				all[number] = append(all[number], *r)
				return true
			})
		}
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		l.Close()
	}
	return all
}

// Logs stay where they are linked to, whatever becomes of them in the store, and
// their numbers never come again.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "ship", "one")
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	now := noon
	clock := func() time.Time { return now }
	n := 0
	begin := func(l Link) *Store {
		t.Helper()
		l.Dir = filepath.Join("ship", "one")
		s, err := open(dir, Options{Links: []Link{l}}, clock)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	add := func(s *Store) {
		t.Helper()
		for range 10 {
			r := numbered(n)
			s.AddRequest(&r)
			n++
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	// What was there before the link is not linked.
	s := begin(Link{})
	s.links.to = nil
	add(s)
	s.lock.Close() // as if it were killed

	s = begin(Link{})
	news := s.Follow("requests")
	add(s)
	select {
	case <-news:
	default:
		t.Error("a follower is not told")
	}
	if d := s.Durable("requests"); d.Log != 2 || d.Bytes == 0 {
		t.Errorf("durable: %+v", d)
	}
	now = now.Add(10 * time.Minute)
	add(s)
	if d := s.Durable("requests"); d.Log != 3 {
		t.Errorf("durable in the next log: %+v", d)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := linked(t, to, -1)
	if len(got) != 2 || len(got[2]) != 10 || len(got[3]) != 10 || got[2][0] != numbered(10) || got[3][9] != numbered(29) {
		t.Errorf("linked are %v", got)
	}
	// All files of the store are removed; the number that was taken counts.
	if err := os.RemoveAll(filepath.Join(dir, "requests")); err != nil {
		t.Fatal(err)
	}
	s = begin(Link{Existing: true, From: map[string]uint64{"requests": 3}, Last: map[string]uint64{"requests": 3}})
	add(s)
	if d := s.Durable("requests"); d.Log != 4 {
		t.Errorf("durable after all was removed: %+v", d)
	}
	// Killed between making a log and linking it.
	if err := os.Remove(filepath.Join(to, LogName("requests", 4))); err != nil {
		t.Fatal(err)
	}
	s.lock.Close()
	s = begin(Link{Existing: true, From: map[string]uint64{"requests": 3}, Last: map[string]uint64{"requests": 3}})
	if got := linked(t, to, -1); len(got[4]) != 10 {
		t.Errorf("a log that a killed writer had not linked has %d requests", len(got[4]))
	}
	s.lock.Close()
}

// A log that cannot be linked at once is linked later, before it is removed.
func TestLinkComesLate(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "late")
	block := func() {
		t.Helper()
		if err := os.WriteFile(to, nil, 0o600); err != nil { // no directory
			t.Fatal(err)
		}
	}
	block()
	s, err := open(dir, Options{Links: []Link{{Dir: "late"}}}, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	r := numbered(1)
	s.AddRequest(&r)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(to); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := linked(t, to, -1); len(got[1]) != 1 || s.Stats().Unlinked != 0 {
		t.Errorf("linked: %v, missed: %d", got, s.Stats().Unlinked)
	}
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	block()
	s.streams[kindRequests].rotate()
	s.AddRequest(&r)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	s.closed.Store(true)
	s.streams[kindRequests].rotate()
	if err := s.keep(); err != nil {
		t.Fatal(err)
	}
	if s.Stats().Unlinked != 1 {
		t.Errorf("%d logs are reported to be missed", s.Stats().Unlinked)
	}
	s.lock.Close()
}

// A LogFile gives only what is durable, and a Decoder the same as a Reader does.
func TestDecoder(t *testing.T) {
	dir := t.TempDir()
	s, err := open(dir, Options{}, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	traffic := newTraffic(1)
	for i := range 300 {
		var r Request
		traffic.next(&r, noon.UnixNano()+int64(i)*1e6)
		s.AddRequest(&r)
	}
	for i := range 20 {
		sec := traffic.second(i%8, noon.Unix(), 30)
		s.AddSecond(&sec)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, openDir)
	size := s.Durable("requests").Bytes
	if got := linked(t, open, size-1); len(got[1]) != 0 {
		t.Errorf("%d requests are given of a frame that is not durable", len(got[1]))
	}
	got := linked(t, open, size)[1]
	reader, err := OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []Request
	if err := reader.Requests(Query{}, func(r *Request) bool { want = append(want, *r); return true }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(want, got) {
		t.Errorf("a decoder gives %d requests that are not the %d of a reader", len(got), len(want))
	}

	data, err := readLog(homeAt(t, dir).Root, logPath(kindSeconds, 1))
	if err != nil {
		t.Fatal(err)
	}
	var d Decoder
	at := 0
	refs, _ := data.inOrder(entrySecond, 0, 1<<62)
	for _, frame := range data.frames {
		d.Seconds(frame, 0, 1<<30, func(_ int, sec *Second) bool {
			var row secondRow
			if !decodeSecond(refs[at].entry, &row, wholeHists) {
				t.Fatal("malformed")
			}
			var x sum
			x.add(&row)
			want := x.second(row.At / 1e6)
			if diff := cmp.Diff(&want, sec, cmp.AllowUnexported(observe.Histogram{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(observe.Histogram{}, "base", "counts")); diff != "" {
				t.Fatalf("second %d: -row +decoder:\n%s", at, diff)
			}
			if want.Endpoint.Total.Quantile(0.99) != sec.Endpoint.Total.Quantile(0.99) {
				t.Errorf("second %d: p99 differs", at)
			}
			at++
			return true
		})
	}
	if at != 20 {
		t.Errorf("%d seconds of 20", at)
	}
	// A part of a frame is the same part of all.
	file, err := OpenLog(homeAt(t, open).Root, LogName("requests", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	frame, err := file.Next(nil, -1)
	if err != nil {
		t.Fatal(err)
	}
	var part []Request
	var numbers []int
	d.Requests(frame, 100, 50, func(record int, r *Request) bool {
		part, numbers = append(part, *r), append(numbers, record)
		return true
	})
	if len(part) != 50 || part[0] != want[100] || part[49] != want[149] || numbers[0] != 100 || numbers[49] != 149 {
		t.Errorf("records 100 to 149 are %d, from %v", len(part), numbers)
	}
	n := 0
	Records(frame, func(at int64) bool {
		if at != want[n].StartNS/1000 {
			t.Fatalf("record %d has the time %d", n, at)
		}
		n++
		return true
	})
	if n != 300 {
		t.Errorf("%d records", n)
	}
	s.lock.Close()
}
