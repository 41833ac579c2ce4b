package clickhouse

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
)

// sinkServer takes inserts and throws them away.
func sinkServer(tb testing.TB) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	tb.Cleanup(srv.Close)
	return "clickhouse://" + strings.TrimPrefix(srv.URL, "http://") + "/slowray?dialect=plain"
}

const benchBatch = 50_000

// BenchmarkEncode is what a request costs until it stands in LZ4 frames.
func BenchmarkEncode(b *testing.B) {
	list := newTraffic(1).requests(benchBatch, noon)
	batch := requestBatch(hostNumber(1), 1, list)
	rows := newRequestRows("requests")
	raw, packed := 0, 0
	before := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		rows.reset()
		for p, r := range batch.Requests {
			rows.add(batch, p, r)
		}
		body, _, err := rows.encode(true)
		if err != nil {
			b.Fatal(err)
		}
		packed = len(body)
	}
	if body, _, err := rows.encode(false); err == nil {
		raw = len(body)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/benchBatch, "cpu-ns/record")
	b.ReportMetric(float64(packed)/benchBatch, "bytes/record")
	b.ReportMetric(float64(raw)/benchBatch, "raw-bytes/record")
}

// BenchmarkAppend is what of it the columns take.
func BenchmarkAppend(b *testing.B) {
	list := newTraffic(1).requests(benchBatch, noon)
	batch := requestBatch(hostNumber(1), 1, list)
	rows := newRequestRows("requests")
	before := cpuTime(b)
	for b.Loop() {
		rows.reset()
		for p, r := range batch.Requests {
			rows.add(batch, p, r)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/benchBatch, "cpu-ns/record")
}

// BenchmarkSend is all that an agent does for a request: encoding, compressing and
// sending it. The server at the other end, which throws it away, is in the figure.
func BenchmarkSend(b *testing.B) {
	db, err := Open(sinkServer(b))
	if err != nil {
		b.Fatal(err)
	}
	list := newTraffic(1).requests(benchBatch, noon)
	first := fleet.Position(1)
	before := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := db.Send(b.Context(), requestBatch(hostNumber(1), first, list)); err != nil {
			b.Fatal(err)
		}
		first += benchBatch
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/benchBatch, "cpu-ns/record")
}
