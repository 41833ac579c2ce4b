package anomaly

import "github.com/slowray/slowray/internal/observe"

// Signal is what is judged of an endpoint.
type Signal uint8

// The signals. After P99 come the parts of the ledger but ack_delay, after them
// those of server; see PartSignal and SplitSignal.
const (
	Rate   Signal = iota // requests per second: fewer are abnormal, when the service as a whole has fewer
	Errors               // share of requests that failed, 0 to 1
	Again                // SYNs retransmitted per request
	Total                // mean request latency, µs
	P50                  // µs
	P99                  // µs
	firstPart
)

const (
	firstSplit = firstPart + Signal(observe.AckDelay)

	// Loss is the share of segments that were retransmitted, 0 to 1; MinRTT the least
	// round trip time, µs. They explain; alone they are no anomaly.
	Loss   = firstSplit + Signal(observe.NumServerParts)
	MinRTT = Loss + 1

	NumSignals = MinRTT + 1
)

// PartSignal is the signal of a part's mean time per request. AckDelay has none: it
// is no part of the total, and gives Total.
func PartSignal(p observe.Part) Signal {
	if p < 0 || p >= observe.AckDelay {
		return Total
	}
	return firstPart + Signal(p)
}

// SplitSignal is the signal of what is spent in a part of server per request.
func SplitSignal(p observe.ServerPart) Signal {
	if p < 0 || p >= observe.NumServerParts {
		return PartSignal(observe.Server)
	}
	return firstSplit + Signal(p)
}

// String is the signal's name, for a part its key in JSON.
func (s Signal) String() string {
	switch {
	case s == Rate:
		return "rate"
	case s == Errors:
		return "errors"
	case s == Again:
		return "syn_again"
	case s == Total:
		return "total"
	case s == P50:
		return "p50"
	case s == P99:
		return "p99"
	case s == Loss:
		return "loss"
	case s == MinRTT:
		return "min_rtt"
	case s >= firstSplit && s < Loss:
		return observe.ServerPart(s - firstSplit).String()
	case s >= firstPart && s < firstSplit:
		return observe.Part(s - firstPart).String()
	}
	return "?"
}

// MarshalText writes the name.
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Unit is what values of the signal are counted in: "µs", "1/s", or "" for shares.
func (s Signal) Unit() string {
	switch s {
	case Rate:
		return "1/s"
	case Errors, Again, Loss:
		return ""
	}
	return "µs"
}

// isPart says whether the signal is a part of the total.
func (s Signal) isPart() bool { return s >= firstPart && s < Loss }
