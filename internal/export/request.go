package export

import "github.com/slowray/slowray/internal/store"

// Request sends a request on that was slow or failed, where something is sent;
// Prometheus has no use for it. It implements record.Sink.
func (x *Exporter) Request(r *store.Request) {
	if p := x.push.Load(); p != nil {
		p.request(r)
	}
}
