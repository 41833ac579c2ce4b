package report

import (
	"io"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// SchemaFunctions identifies the JSON form of calls of functions.
const SchemaFunctions = "slowray.func/1"

type functionsJSON struct {
	Schema string `json:"schema"`
	*observe.Functions
	Calls []functionJSON `json:"functions"` // hides the one of observe.Functions
}

type functionJSON struct {
	*observe.Function
	PerSecond float64        `json:"per_second"`
	Quantiles *quantilesJSON `json:"quantiles_ns,omitempty"`
}

type quantilesJSON struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

// FunctionsJSON writes o in the form of schema/function.schema.json.
func FunctionsJSON(w io.Writer, o *observe.Functions) error {
	out := functionsJSON{Schema: SchemaFunctions, Functions: o, Calls: []functionJSON{}}
	for i := range o.Calls {
		f := &o.Calls[i]
		one := functionJSON{Function: f, PerSecond: float64(f.Calls) / (float64(o.WindowNS) / 1e9)}
		if f.Returned > 0 {
			h := &f.Latency
			one.Quantiles = &quantilesJSON{h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Quantile(0.999), f.MaxNS}
		}
		out.Calls = append(out.Calls, one)
	}
	return printable.WriteJSON(w, out)
}
