package diagnose

import (
	"fmt"
	"net"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
)

const (
	overlapShare    = 0.05 // of an endpoint's requests: fewer leave its times as they are
	overlapRequests = 20
	overlapTold     = 5 // endpoints that are named
)

// overlapping names the endpoints whose requests are asked before those before
// them are answered, on one connection: pipelined, or HTTP/2 that cannot be read,
// as under TLS. What was measured there is not the time of single requests, and
// that nothing was found says nothing.
func overlapping(o *observe.Observation) []Excluded {
	var told []Excluded
	more := 0
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		if e.Overlapped < overlapRequests || float64(e.Overlapped) < overlapShare*float64(e.Requests) {
			continue
		}
		if len(told) == overlapTold {
			more++
			continue
		}
		what := "pipelined, or HTTP/2 under TLS"
		if e.TLSLibrary != "" {
			what = "HTTP/2 under " + e.TLSLibrary + ", which cannot be watched"
		}
		told = append(told, Excluded{string(observe.KindRequests), fmt.Sprintf(
			"single requests of %s, %s by %s: %.0f %% run side by side on a connection (%s), and their times are not known",
			net.JoinHostPort(e.Addr, strconv.Itoa(e.Port)), e.Side, e.Comm, min(100, 100*float64(e.Overlapped)/float64(e.Requests)), what)})
	}
	if more > 0 {
		told = append(told, Excluded{string(observe.KindRequests), fmt.Sprintf("single requests of %d more endpoints, where they run side by side", more)})
	}
	return told
}
