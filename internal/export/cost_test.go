package export

import (
	"net/http/httptest"
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// BenchmarkScrape is a scrape of 2,000 endpoints.
func BenchmarkScrape(b *testing.B) {
	x := fed(1000, 3, Options{Endpoints: 1000})
	h := x.Handler()
	for name, accept := range map[string]string{
		"text":     "text/plain",
		"protobuf": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
	} {
		for _, encoding := range []string{"", "gzip"} {
			b.Run(name+encoding, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r := httptest.NewRequest("GET", "/metrics", nil)
					r.Header.Set("Accept", accept)
					r.Header.Set("Accept-Encoding", encoding)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if w.Code != 200 {
						b.Fatal(w.Code, w.Body)
					}
					b.ReportMetric(float64(w.Body.Len())/1e6, "MB")
				}
			})
		}
	}
}

// BenchmarkAddSecond is what one endpoint costs in one second.
func BenchmarkAddSecond(b *testing.B) {
	const n = 2000
	x := New(Options{Endpoints: n})
	var seconds []*store.Second
	for i := range n {
		seconds = append(seconds, secondOf(observe.Served, "127.0.0.1", 1+i, "nginx"))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		x.add(seconds[i%n])
		i++
	}
}
