package lab

import "time"

// Endpoint is one endpoint of slowray's report (design.md), as far as the lab
// compares it with what it knows.
type Endpoint struct {
	Side         string  `json:"side"`
	NetNS        uint64  `json:"netns"`
	Port         int     `json:"port"`
	Requests     float64 `json:"requests"`
	RPS          float64 `json:"rps"`
	RTT          float64 `json:"rtt_us"`
	LossPermille float64 `json:"loss_permille"`
	Retrans      float64 `json:"retrans"`
	Ledger       map[string]struct {
		Mean float64 `json:"mean"`
	} `json:"ledger_us"`
}

// Part is what a request spent in a part of the ledger on average.
func (e *Endpoint) Part(name string) time.Duration {
	return time.Duration(e.Ledger[name].Mean * float64(time.Microsecond))
}

// outerParts add up to the request latency.
var outerParts = []string{"accept_wait", "tls", "upload", "recv_wait", "server", "stall", "send_wait", "network", "retrans", "unaccounted"}

// Total is a request's mean time: the sum of its parts.
func (e *Endpoint) Total() time.Duration {
	sum := time.Duration(0)
	for _, p := range outerParts {
		sum += e.Part(p)
	}
	return sum
}

// endpoint gives the busiest endpoint of that side and port in a namespace, or
// nil.
func (r *Report) endpoint(side string, netns uint64, port int) *Endpoint {
	var found *Endpoint
	for n := range r.Endpoints {
		e := &r.Endpoints[n]
		if e.Side == side && e.NetNS == netns && e.Port == port && (found == nil || e.Requests > found.Requests) {
			found = e
		}
	}
	return found
}
