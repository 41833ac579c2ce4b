package export

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// mostScrapes is how many are answered at once. Nobody has many servers of
// Prometheus; one that asks again before it has its answer must not add up.
const mostScrapes = 4

// Handler answers scrapes of Prometheus, as text, or as protobuf with native
// histograms for those that ask for it. It sends one family after the other: all
// of them together would take tens of megabytes.
func (x *Exporter) Handler() http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	under := make(chan struct{}, mostScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		select {
		case under <- struct{}{}:
			defer func() { <-under }()
		default:
			http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
			return
		}
		format := expfmt.Negotiate(r.Header)
		w.Header().Set("Content-Type", string(format))
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Vary", "Accept, Accept-Encoding")
		if r.Method == http.MethodHead {
			return
		}
		out := io.Writer(w)
		if takesGzip(r.Header) {
			w.Header().Set("Content-Encoding", "gzip")
			zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is known
			defer zip.Close()
			out = zip
		}
		buffer := bufio.NewWriterSize(out, 32<<10)
		defer buffer.Flush()
		encoder := expfmt.NewEncoder(buffer, format)
		for f := range x.families {
			if encoder.Encode(f) != nil {
				return // nobody reads any more
			}
		}
		// What of the process cannot be read is left out.
		own, _ := process.Gather()
		for _, f := range own {
			if encoder.Encode(f) != nil {
				return
			}
		}
		if c, ok := encoder.(expfmt.Closer); ok {
			_ = c.Close()
		}
	})
}

func takesGzip(h http.Header) bool {
	for part := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.TrimSpace(quality)
			return q != "q=0" && q != "q=0.0"
		}
	}
	return false
}
