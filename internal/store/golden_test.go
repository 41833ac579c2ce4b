package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
)

func goldenRequests() (list []Request) {
	for i, r := range observetest.Requests() {
		list = append(list, Request{Request: r, Process: observetest.Identities()[i], Why: Why(i % 3)})
	}
	return list
}

func goldenSeconds() (list []Second) {
	for i, e := range observetest.Seconds() {
		list = append(list, Second{At: 1_790_000_000, Endpoint: e, Process: observetest.Identities()[i]})
	}
	return list
}

func parquetOf[T any](t *testing.T, rows []T) []byte {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// TestBytesStay: what is written is what was written before, byte by byte, and is
// read back as it was.
func TestBytesStay(t *testing.T) {
	var log bytes.Buffer
	var rows []requestRow
	var text Words
	var back phrases
	for i, r := range goldenRequests() {
		entry := appendRequest(nil, &r, uint32(i), 0)
		log.Write(entry)
		var got Request
		if !decodeRequest(entry, &got, observetest.Identities()) {
			t.Fatalf("request %d is malformed", i)
		}
		got.Process = r.Process
		var row requestRow
		row.set(&got, &text)
		rows = append(rows, row)
		var again Request
		row.request(&again, &back)
		if got.Side == 0 { // a file has no other sides than these
			got.Side = observe.Served
		}
		got.Flags &^= 1 << 30 // has no name
		if again != got {
			t.Errorf("request %d: %+v, want %+v", i, again, got)
		}
	}
	var seconds []secondRow
	for _, s := range goldenSeconds() {
		var row, again secondRow
		row.set(&s, 10)
		entry := appendSecond(nil, &row)
		log.Write(entry)
		if !decodeSecond(entry, &again, partHists) {
			t.Fatal("a second is malformed")
		}
		log.Write(appendSecond(nil, &again))
		seconds = append(seconds, row)
		var of sum
		of.add(&row)
		of.add(&again)
		sec := of.second(s.At)
		row.set(&sec, 20)
		seconds = append(seconds, row)
	}
	for _, c := range []struct {
		what string
		got  []byte
		want string
	}{
		{"log", log.Bytes(), "0ff73ec3a6254237"},
		{"requests", parquetOf(t, rows), "2b7908f65195ba5e"},
		{"seconds", parquetOf(t, seconds), "0cec6750277a315f"},
	} {
		if sum := sha256.Sum256(c.got); hex.EncodeToString(sum[:8]) != c.want {
			t.Errorf("%s: %x, want %s", c.what, sum[:8], c.want)
		}
	}
}
