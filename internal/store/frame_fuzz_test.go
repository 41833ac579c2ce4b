package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzFrames reads logs frame by frame, as those do that ship them: each frame once, in
// order, and of each record its time before it is decoded.
func FuzzFrames(f *testing.F) {
	b := newBatch(1 << 20)
	tr := newTraffic(1)
	var r Request
	for range 3 {
		tr.next(&r, noon.UnixNano())
		b.putRequest(&r)
	}
	b.seal()
	f.Add(b.buf[frameHead:], []byte{}, int64(-1))
	f.Add([]byte{entryRequest, 3, 1, 2, 3}, []byte{entrySecond, 200, 1}, int64(40))
	f.Add([]byte{entryFinding}, []byte{0xff, 0xff, 0xff, 0x7f}, int64(1<<62))
	dir := f.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { root.Close() })
	f.Fuzz(func(t *testing.T, payload, tail []byte, limit int64) {
		data := []byte(logMagic)
		for range 2 {
			if len(payload) > 0 {
				data = binary.LittleEndian.AppendUint32(data, uint32(len(payload)))
				data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(payload, castagnoli))
				data = append(data, payload...)
			}
		}
		data = append(data, tail...)
		path := filepath.Join(dir, LogName("requests", 7))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 512, Fixed: 2 << 20, CPU: time.Second}, func() {
			l, err := OpenLog(root, filepath.Base(path))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var d Decoder
			var buf []byte
			frames, at := 0, l.Offset()
			for {
				buf, err = l.Next(buf[:0], limit)
				if err != nil {
					break
				}
				if frames++; l.Offset() <= at || l.Offset() > int64(len(data)) {
					t.Fatalf("from %d to %d of %d", at, l.Offset(), len(data))
				}
				at = l.Offset()
				if frames <= 2 && len(payload) > 0 && !bytes.Equal(buf, payload) {
					t.Fatalf("%x is read as %x", payload, buf)
				}
				records := 0
				Records(buf, func(int64) bool { records++; return true })
				given, last := 0, -1
				look := func(record int) bool {
					if record <= last || record >= records {
						t.Fatalf("record %d after %d, of %d", record, last, records)
					}
					last = record
					given++
					return true
				}
				d.Requests(buf, 0, records, func(i int, _ *Request) bool { return look(i) })
				last = -1
				d.Seconds(buf, 0, records, func(i int, _ *Second) bool { return look(i) })
				last = -1
				d.Findings(buf, 0, records, func(i int, _ *Finding) bool { return look(i) })
				if given > records {
					t.Fatalf("%d of %d records", given, records)
				}
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if want := 2 * min(len(payload), 1); frames < want && limit < 0 {
				t.Fatalf("%d frames of %d", frames, want)
			}
			l.Damaged()
		})
	})
}
