package ship

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/store"
)

// FuzzCursor opens a cursor of any bytes. What it knows one of its slots said, the later
// of two; what is written then is there the next time.
func FuzzCursor(f *testing.F) {
	slot := func(turn uint64, s state) []byte {
		c := &cursorFile{turn: turn - 1}
		path := filepath.Join(f.TempDir(), "slot")
		var err error
		if c.f, err = os.Create(path); err != nil {
			f.Fatal(err)
		}
		defer c.f.Close()
		if err := c.write(s, false); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		return data[len(data)-slotBytes:]
	}
	one, two := slot(8, state{Done: at(3, 7), Sent: at(3, 7), GaveUp: 9}), slot(9, state{Done: at(3, 9), First: at(3, 10), Last: at(3, 12)})
	f.Add(one, two, true)
	f.Add(two, one[:40], false)
	f.Add([]byte{}, []byte{}, false)
	f.Add([]byte("slowray.cursor/1 turn=18446744073709551615 done=0 sent=0 first=0 last=0 gaveup=0 crc=00000000"), two, true)
	path := filepath.Join(f.TempDir(), "requests.cursor")
	dir, err := safefile.OpenDir(filepath.Dir(path))
	if err != nil {
		f.Fatal(err)
	}
	defer dir.Close()
	f.Fuzz(func(t *testing.T, first, second []byte, sums bool) {
		var data []byte
		var said []state
		for _, part := range [][]byte{first, second} {
			s := bytes.Repeat([]byte{' '}, slotBytes)
			copy(s, part)
			if text, _, ok := bytes.Cut(s, []byte(" crc=")); ok && sums && len(text)+14 <= slotBytes { // so that it is not the sum that refuses it
				s = append(fmt.Appendf(nil, "%s crc=%08x", text, crc32.ChecksumIEEE(text)), bytes.Repeat([]byte{' '}, slotBytes-len(text)-13)...)
			}
			if _, was, ok := parseSlot(s); ok {
				said = append(said, was)
			}
			data = append(data, s...)
		}
		if len(first) == 0 && len(second) == 0 {
			data = nil
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		budgettest.Within(t, len(data), budgettest.Usual, func() {
			c, s, known, err := openCursor(dir, filepath.Base(path))
			if err != nil {
				if len(said) > 0 {
					t.Fatal(err)
				}
				return
			}
			defer c.close()
			if known != (len(said) > 0) || known && s != said[0] && s != said[len(said)-1] {
				t.Fatalf("known %v: %+v of %+v", known, s, said)
			}
			s.Done, s.GaveUp = s.Done+1, s.GaveUp+1
			if err := c.write(s, false); err != nil {
				t.Fatal(err)
			}
			again, got, known, err := openCursor(dir, filepath.Base(path))
			if err != nil || !known || got != s {
				t.Fatalf("%+v was written, and %+v read: %v %v", s, got, known, err)
			}
			again.close()
		})
	})
}

// FuzzReport reads what a recorder left of how far it is, in whatever directory: nothing
// of it is beyond what may be reported, and it is the same when it is left again.
func FuzzReport(f *testing.F) {
	now := time.Unix(1_800_000_000, 0).UTC()
	text, err := json.Marshal(Report{At: now, Targets: []Status{{Title: "clickhouse://h", Behind: time.Minute, Records: 7, Error: "x\x1b", LastAt: now}, {History: true}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"at":"2026-01-01T00:00:00Z","targets":[{"behind_seconds":1e300,"sent":1}]}`))
	f.Add([]byte(`{"at":"2026-01-01T00:00:00Z","targets":[{"behind_seconds":-1e300,"waiting_bytes":-1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		budgettest.Within(t, len(text), budgettest.Cost{PerByte: 256, Fixed: 1 << 20, CPU: time.Second}, func() {
			r, err := parseReport(text, now)
			if err != nil {
				return
			}
			r.Stale(now)
			for _, s := range r.Targets {
				if s.Behind < 0 || s.Behind > mostBehind {
					t.Errorf("behind by %s", s.Behind)
				}
			}
			left, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			again, err := parseReport(left, now)
			if err != nil {
				t.Fatal(err)
			}
			if once, err := json.Marshal(again); err != nil || !bytes.Equal(once, left) {
				t.Errorf("%s, and then %s: %v", left, once, err)
			}
		})
	})
}

// aLog is a log as the store writes it, and its beginning without a frame.
func aLog(f *testing.F) (whole, head []byte) {
	dir := f.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for n := range 20 {
		r := numbered(n, 1_800_000_000e9+int64(n)*1e9)
		s.AddRequest(&r)
		if n%5 == 4 {
			if err := s.Sync(); err != nil {
				f.Fatal(err)
			}
		}
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "open", "requests.*.log"))
	if len(logs) != 1 {
		f.Fatalf("%d logs", len(logs))
	}
	if whole, err = os.ReadFile(logs[0]); err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	return whole, whole[:bytes.IndexByte(whole, '\n')+1]
}

// framed is frames of some payloads, as in a log.
func framed(payloads ...[]byte) (b []byte) {
	for _, p := range payloads {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
		b = append(b, p...)
	}
	return b
}

// FuzzBatches makes batches of logs of any frames. Positions only rise, from batch to
// batch too; no record is in two of them, and all that were counted are in one.
func FuzzBatches(f *testing.F) {
	whole, head := aLog(f)
	const frameHead = 8
	var payloads [][]byte
	for rest := whole[len(head):]; len(rest) > frameHead; {
		size := int(binary.LittleEndian.Uint32(rest))
		if size == 0 || size > len(rest)-frameHead {
			break
		}
		payloads = append(payloads, rest[frameHead:frameHead+size])
		rest = rest[frameHead+size:]
	}
	if len(payloads) < 2 {
		f.Fatal("the log has no frames")
	}
	f.Add(payloads[0], payloads[1], uint8(0), uint32(1), uint8(0))
	f.Add(payloads[1], payloads[0], uint8(3), uint32(2), uint8(1))
	f.Add([]byte{2, 3, 1, 2, 3, 1}, []byte{}, uint8(1), uint32(0), uint8(2))
	f.Add([]byte{2, 200}, payloads[0], uint8(2), uint32(1<<31), uint8(0))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, first, second []byte, most uint8, next uint32, kind uint8) {
		name := Streams[int(kind)%len(Streams)]
		const log = 7
		path := filepath.Join(dir, store.LogName(string(name), log))
		data := append(append(bytes.Clone(head), framed(first, second, first)...), 9, 9, 9)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		// What it is decoded into is used again: some of it is large from the start.
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 512, Fixed: 4 << 20, CPU: time.Second}, func() {
			all, last, err := count(folder(filepath.Dir(path)), filepath.Base(path), 0)
			if err != nil {
				t.Fatal(err)
			}
			if uint64(last) != all {
				t.Fatalf("%d records, the last is number %d", all, last)
			}
			b := builder{stream: name, most: int(most)}
			defer b.close()
			if err := b.open(folder(dir), log, next); err != nil {
				t.Fatal(err)
			}
			seen, before := uint64(0), fleet.Position(0)
			for range all + 2 {
				end, err := b.extend(-1, 0)
				if err != nil {
					t.Fatal(err)
				}
				if b.batch.Count == 0 {
					if !end {
						t.Fatal("a batch of nothing, and more follows")
					}
					break
				}
				batch := b.fixed(&fleet.Host{})
				if batch.First <= before || batch.Last < batch.First || logOf(batch.First) != log || logOf(batch.Last) != log {
					t.Fatalf("from %x to %x after %x", batch.First, batch.Last, before)
				}
				if n := uint64(batch.Last - batch.First + 1); n != uint64(batch.Count) {
					t.Fatalf("%d records from %x to %x", batch.Count, batch.First, batch.Last)
				}
				if most > 0 && batch.Count > int(most) {
					t.Fatalf("%d records, %d at most", batch.Count, most)
				}
				within, given := batch.First-1, 0
				look := func(p fleet.Position) {
					if p <= within || p > batch.Last {
						t.Fatalf("%x after %x, of the batch to %x", p, within, batch.Last)
					}
					within = p
					given++
				}
				switch name {
				case fleet.Requests:
					for p := range batch.Requests {
						look(p)
					}
				case fleet.Seconds:
					for p := range batch.Seconds {
						look(p)
					}
				case fleet.Findings:
					for p := range batch.Findings {
						look(p)
					}
				}
				if given > batch.Count { // fewer: what does not decode is no record
					t.Fatalf("%d records of %d", given, batch.Count)
				}
				seen, before = seen+uint64(batch.Count), batch.Last
				b.drop()
			}
			if want := all - min(all, uint64(max(next, 1)-1)); seen != want {
				t.Fatalf("%d records in batches of %d (from number %d of %d)", seen, want, next, all)
			}
		})
	})
}
