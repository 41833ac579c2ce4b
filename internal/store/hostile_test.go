package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// oneLineOf fails unless the error is one line.
func oneLineOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("more than a line: %q", err)
	}
	return err.Error()
}

func TestSecondWriter(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	must(t, err)
	_, err = Open(dir, Options{})
	if text := oneLineOf(t, err); !strings.Contains(text, "another slowray (pid ") {
		t.Error(text)
	}
	must(t, s.Close())
	if err := s.Sync(); err == nil {
		t.Error("Sync after Close is well")
	}
	if err := s.Close(); err == nil {
		t.Error("the second Close is well")
	}
	s, err = Open(dir, Options{})
	must(t, err)
	must(t, s.Close())
}

func TestDirectoryThatIsNone(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(file, Options{})
	oneLineOf(t, err)
	_, err = OpenReader(file)
	oneLineOf(t, err)
	_, err = OpenReader(filepath.Join(base, "missing"))
	oneLineOf(t, err)
	if os.Getuid() != 0 {
		locked := filepath.Join(base, "locked")
		must(t, os.Mkdir(locked, 0o500))
		_, err = Open(filepath.Join(locked, "history"), Options{})
		oneLineOf(t, err)
	}
	empty, err := OpenReader(base)
	must(t, err)
	if from, to, err := empty.Span(); err != nil || !from.IsZero() || !to.IsZero() {
		t.Errorf("span of nothing: %v to %v, %v", from, to, err)
	}
	if list, err := empty.Endpoints(Query{}); err != nil || len(list) != 0 {
		t.Errorf("endpoints of nothing: %v, %v", list, err)
	}
}

// Names that do not belong, files that are cut off or garbage, folders and pipes
// in the place of files: what is whole is read, the rest is skipped and told.
func TestGarbageFiles(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	want := fill(t, s, c, newTraffic(6), noon, 4, 3)
	must(t, s.AddObservation(&observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon, Seconds: 1}}, []cause.Finding{{Cause: "x"}}))
	must(t, s.Close())
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, k := range parquetKinds {
		list, err := segmentsIn(t, dir, k)
		must(t, err)
		good, err := os.ReadFile(list[0].path)
		must(t, err)
		day := filepath.Dir(list[0].path)
		put := func(name string, data []byte) { must(t, os.WriteFile(filepath.Join(day, name), data, 0o600)) }
		put("120000-120459.91.parquet", good[:len(good)/2])
		put("120000-120459.92.parquet", noise)
		put("120000-120459.93.parquet", nil)
		put("120000-120459.94.parquet", append([]byte("PAR1"), append(noise, "\xff\xff\xff\xffPAR1"...)...))
		put("notes.txt", noise)
		put("120000-110000.95.parquet", good) // ends before it begins
		put("996099-120000.95.parquet", good)
		put("120000-120459.x.parquet", good)
		put("120000-120459.99999999999999999999.parquet", good)
		put("120000-120459..parquet", good)
		must(t, os.Mkdir(filepath.Join(day, "120000-120459.96.parquet"), 0o700))
		must(t, syscall.Mkfifo(filepath.Join(day, "120000-120459.97.parquet"), 0o600))
		must(t, os.Symlink("/dev/zero", filepath.Join(day, "120000-120459.98.parquet")))
		must(t, os.MkdirAll(filepath.Join(dir, string(k), "yesterday"), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, string(k), "2026-11-21"), nil, 0o600))
	}
	logs := filepath.Join(dir, openDir)
	must(t, os.WriteFile(filepath.Join(logs, "requests.7.log"), noise, 0o600))
	must(t, os.WriteFile(filepath.Join(logs, "seconds.7.log"), append([]byte(logMagic), noise...), 0o600))
	must(t, os.WriteFile(filepath.Join(logs, "findings.7.log"), frameOf(append([]byte{entryFinding, 5}, noise[:5]...)), 0o600))
	must(t, os.WriteFile(filepath.Join(logs, "readme"), noise, 0o600))
	must(t, syscall.Mkfifo(filepath.Join(logs, "requests.8.log"), 0o600))

	r, err := OpenReader(dir)
	must(t, err)
	var got []Request
	must(t, r.Requests(Query{}, func(req *Request) bool { got = append(got, *req); return true }))
	sameRequests(t, got, want)
	if _, err := r.Totals(Query{}); err != nil {
		t.Error(err)
	}
	eps, err := r.Endpoints(Query{PartHists: true})
	if must(t, err); len(eps) != 2 {
		t.Errorf("%d endpoints, want 2", len(eps))
	}
	found, err := r.Findings(time.Time{}, time.Time{})
	if must(t, err); len(found) != 1 {
		t.Errorf("%d findings, want 1", len(found))
	}
	if n := len(r.Skipped()); n < 12 {
		t.Errorf("%d files are reported to be skipped, want 12 at least: %v", n, r.Skipped())
	}
	for _, line := range r.Skipped() {
		if strings.Contains(line, "\n") {
			t.Errorf("more than a line: %q", line)
		}
	}

	// The writer goes on, too, merges what it can, and says what it cannot.
	c.set(noon.Add(2 * time.Hour))
	s = openAt(t, dir, Options{}, c)
	if err := s.keep(); err != nil {
		oneLineOf(t, err)
	}
	for range 5 {
		s.keep()
	}
	sameRequests(t, readAll2(t, dir, true), want)
	req := want[0]
	s.AddRequest(&req)
	must(t, s.Sync())
	sameRequests(t, readAll2(t, dir, true), append(want, req))
	c.set(noon.Add(9 * 24 * time.Hour))
	s.keep()
	list, err := segmentsIn(t, dir, kindRequests)
	if must(t, err); len(list) > 1 {
		t.Errorf("files that cannot be read outlive their time: %v", list)
	}
	if err := s.Close(); err != nil {
		oneLineOf(t, err)
	}
}

// frameOf is a log with one frame.
func frameOf(payload []byte) []byte {
	b := []byte(logMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}

// A disk that is full costs what comes meanwhile, not what was stored, and it is
// said and counted.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: a full disk needs root, to mount a small tmpfs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("SKIP: mount tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	c := &clock{t: noon}
	s := openAt(t, filepath.Join(dir, "history"), Options{}, c)
	n := 0
	add := func(k int) {
		for range k {
			r := numbered(n)
			s.AddRequest(&r)
			n++
		}
	}
	add(2000)
	must(t, s.Sync())
	ballast := filepath.Join(dir, "ballast")
	os.WriteFile(ballast, make([]byte, 2<<20), 0o600) // as much as there is room for
	kept := n
	add(5000)
	if text := oneLineOf(t, s.Sync()); !strings.Contains(text, "no space left") {
		t.Error(text)
	}
	st := s.Stats()
	if st.Dropped != 5000 || st.LastError == "" {
		t.Errorf("stats %+v", st)
	}
	window := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon, Seconds: 60}}
	must(t, s.sync()) // nothing to write, and so no error
	oneLineOf(t, s.AddObservation(window, nil))
	if s.Stats().LastError == "" {
		t.Error("a window that cannot be written is not told")
	}
	s.streams[kindRequests].rotate()
	oneLineOf(t, s.keep())
	checkNumbers(t, readAll(t, s.dir, Query{}), kept)

	must(t, os.Remove(ballast))
	must(t, s.AddObservation(window, nil))
	n = kept
	add(100)
	must(t, s.Sync())
	must(t, s.keep())
	if st := s.Stats(); st.LastError != "" {
		t.Errorf("an error is still told: %s", st.LastError)
	}
	must(t, s.Close())
	checkNumbers(t, readAll(t, s.dir, Query{}), kept+100)
}

// What does not fit into memory until the next sync is dropped and counted.
func TestTooMuch(t *testing.T) {
	c := &clock{t: noon}
	s := openAt(t, t.TempDir(), Options{}, c)
	r := numbered(0)
	r.Label = strings.Repeat("x", 1<<20)
	for range 20 {
		s.AddRequest(&r)
	}
	r.Label = strings.Repeat("x", 20<<20)
	s.AddRequest(&r)
	st := s.Stats()
	if st.Requests == 0 || st.Dropped < 10 || st.Requests+st.Dropped != 21 {
		t.Errorf("stats %+v", st)
	}
	must(t, s.Sync())
	r.Label = ""
	s.AddRequest(&r)
	must(t, s.Close())
	if got := len(readAll(t, s.dir, Query{})); uint64(got) != st.Requests+1 {
		t.Errorf("%d requests, want %d", got, st.Requests+1)
	}
}

func FuzzLog(f *testing.F) {
	b := newBatch(1 << 20)
	tr := newTraffic(1)
	var r Request
	for range 3 {
		tr.next(&r, noon.UnixNano())
		b.putRequest(&r)
	}
	sec := tr.second(1, noon.Unix(), 2)
	var row secondRow
	row.set(&sec, 1)
	b.put(entrySecond, appendSecond(nil, &row))
	found, _ := appendFinding(nil, &Finding{Start: noon, End: noon, Finding: cause.Finding{Cause: "x"}})
	b.put(entryFinding, found)
	b.seal()
	f.Add(b.buf[frameHead:])
	f.Add([]byte{})
	f.Add([]byte{entryRequest, 3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, payload []byte) {
		// As a log, whole and not.
		whole := append([]byte(logMagic), payload...)
		for _, data := range [][]byte{payload, whole, frameOf(payload)} {
			l, err := parseLog(data)
			if err == nil && l.whole+l.torn != int64(len(data)) {
				t.Fatalf("%d bytes whole and %d torn of %d", l.whole, l.torn, len(data))
			}
			l.count()
			l.span()
			refs, procs := l.inOrder(entryRequest, math.MinInt64, math.MaxInt64)
			requestsOf(refs, procs, func([]requestRow) bool { return true })
			l.findings(func(*findingRow) bool { return true })
			refs, _ = l.inOrder(entrySecond, math.MinInt64, math.MaxInt64)
			rollUp(refs, 10, partHists, func(*secondRow) bool { return true })
			secondsOf(refs, partHists, func(row *secondRow) bool {
				var s sum
				s.add(row)
				s.second(0)
				// What was read is written the same.
				var again secondRow
				if !decodeSecond(appendSecond(nil, row), &again, partHists) {
					t.Fatal("a row that was read cannot be read again")
				}
				return true
			})
		}
		// What decodes as a request is written the same.
		var one, two Request
		if decodeRequest(payload, &one, make([]observe.Identity, 4)) && one.TotalNS() < 1<<50 && one.TotalNS() > -1<<50 {
			if !decodeRequest(appendRequest(nil, &one, 0, 0), &two, make([]observe.Identity, 4)) {
				t.Fatalf("%+v cannot be read again", one)
			}
		}
	})
}

// FuzzParquet reads files with bytes changed.
func FuzzParquet(f *testing.F) {
	dir := f.TempDir()
	c := &clock{t: noon}
	s := openAt(f, dir, Options{}, c)
	fill(f, s, c, newTraffic(6), noon, 1, 1)
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	var files [][]byte
	for _, k := range []kind{kindRequests, kindMinutes5} {
		list, err := segmentsIn(f, dir, k)
		if err != nil || len(list) == 0 {
			f.Fatal(err)
		}
		data, err := os.ReadFile(list[0].path)
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, data)
	}
	f.Add(uint32(40), []byte{0xff}, true)
	f.Add(uint32(0xffffff00), []byte{1, 2, 3, 4}, false)
	f.Fuzz(func(t *testing.T, at uint32, change []byte, requests bool) {
		which, k := 1, kindMinutes5
		if requests {
			which, k = 0, kindRequests
		}
		data := bytes.Clone(files[which])
		copy(data[int(at)%len(data):], change)
		dir := t.TempDir()
		seg := segment{kind: k, first: noon.Unix(), last: noon.Unix() + 300, low: 1, high: 1}
		path := filepath.Join(dir, seg.name())
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, data, 0o600))
		r, err := OpenReader(dir)
		must(t, err)
		must(t, r.Requests(Query{}, func(*Request) bool { return true }))
		if _, err := r.Endpoints(Query{PartHists: true}); err != nil {
			t.Fatal(err)
		}
	})
}

// Nothing is allocated for a request, once the memory is there.
func TestAddRequestAllocatesNothing(t *testing.T) {
	c := &clock{t: noon}
	s := openAt(t, t.TempDir(), Options{}, c)
	list := samples(512)
	add := func() {
		for i := range list {
			s.AddRequest(&list[i])
		}
	}
	for range 2 { // each of the two batches
		add()
		add()
		must(t, s.Sync())
	}
	if n := testing.AllocsPerRun(1, add); n > 2 { // of 512; the runtime's own now and then
		t.Errorf("%g allocations for %d requests", n, len(list))
	}
}

// What another version of slowray left, or somebody else, is not removed, and stands
// in the way of nothing; what was cut off before its first entry is.
func TestLogOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, openDir), 0o700))
	other := []byte("slowray.log/5\nand five minutes of requests")
	for number, data := range map[uint64][]byte{3: other, 4: nil, 5: []byte(logMagic[:5]), 6: make([]byte, 4096), 7: append([]byte(logMagic[:5]), make([]byte, 100)...)} {
		must(t, os.WriteFile(filepath.Join(dir, logPath(kindRequests, number)), data, 0o600))
	}
	// Who only looks says so too, and leaves it where it is.
	reader, err := OpenReader(dir)
	must(t, err)
	must(t, reader.Requests(Query{}, func(*Request) bool { return true }))
	if list := fmt.Sprint(reader.Skipped()); strings.Count(list, "requests.3.log: not a log of slowray that this version reads (slowray.log/5)") != 1 {
		t.Errorf("skipped: %s", list)
	}
	must(t, reader.Close())
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	r := numbered(0)
	s.AddRequest(&r)
	must(t, s.Sync())
	if text := oneLineOf(t, s.keep()); !strings.Contains(text, "requests.3.log: not a log of slowray that this version reads (slowray.log/5): it is left as requests.3.log.unknown") {
		t.Error(text)
	}
	must(t, s.keep())
	must(t, s.Close())
	if got, err := os.ReadFile(filepath.Join(dir, logPath(kindRequests, 3)) + ".unknown"); err != nil || !bytes.Equal(got, other) {
		t.Errorf("%q, %v", got, err)
	}
	files, err := os.ReadDir(filepath.Join(dir, openDir))
	if must(t, err); len(files) != 1 {
		t.Errorf("%v are left", files)
	}
	sameRequests(t, readAll(t, dir, Query{}), []Request{stored(r)})
}
