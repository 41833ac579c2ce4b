package clickhouse

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe/observetest"
	"github.com/slowray/slowray/internal/store"
)

// TestBytesStay: the tables, and what is sent to them, are what they were before.
func TestBytesStay(t *testing.T) {
	var requests []store.Request
	for i, r := range observetest.Requests() {
		requests = append(requests, store.Request{Request: r, Process: observetest.Identities()[i], Why: store.Why(i % 3)})
	}
	var seconds []store.Second
	for i, e := range observetest.Seconds() {
		delete(e.Flags, "timeout") // a map has no order
		seconds = append(seconds, store.Second{At: 1_790_000_000, Endpoint: e, Process: observetest.Identities()[i]})
	}
	host := hostNumber(1)
	encoded := func(b *block) string {
		b.whole = true
		body, columns, err := b.encode(false)
		if err != nil {
			t.Fatal(err)
		}
		return string(body) + strings.Join(columns, ",")
	}
	of := newRequestRows("requests")
	for i := range requests {
		of.add(requestBatch(host, 1, requests[:1]), 7, &requests[i])
	}
	sums := newSecondRows("seconds")
	for i := range seconds {
		sums.add(secondBatch(host, 1, seconds), 8, &seconds[i])
	}
	in := newRequestReader()
	c := &Config{Database: "slowray", Shards: [][]string{{"a:1"}}}
	schema := ""
	for _, d := range []Dialect{Plain, Modern} {
		schema += strings.Join(c.Schema(d, 0, 0, Retention{Days: 7}), "\n")
	}
	for _, g := range []struct{ what, got, want string }{
		{"schema", schema, "1a16cddc6a4b1946"},
		{"requests", encoded(of.block), "909d2658c967fd3d"},
		{"seconds", encoded(sums.block), "c38317c1a240e178"},
		{"question", strings.Join(in.list, ","), "9192ee4f689e14c7"},
	} {
		if sum := sha256.Sum256([]byte(g.got)); hex.EncodeToString(sum[:8]) != g.want {
			t.Errorf("%s: %x, want %s", g.what, sum[:8], g.want)
		}
	}
}
