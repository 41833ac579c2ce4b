package export

import "github.com/slowray/slowray/internal/store"

// Request is of no use to Prometheus: what it says is in the seconds. It
// implements record.Sink.
func (x *Exporter) Request(*store.Request) {}
