package diagnose

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestOverlapping: where requests run side by side their times are not known, and
// that is reported; a few that do leave the others as they are.
func TestOverlapping(t *testing.T) {
	endpoint := func(port int, requests, overlapped uint64) observe.Endpoint {
		return observe.Endpoint{Side: "served", Addr: "10.0.0.1", Port: port, Comm: "nginx", Requests: requests, Overlapped: overlapped}
	}
	o := &observe.Observation{Endpoints: []observe.Endpoint{endpoint(443, 1000, 300), endpoint(80, 1000, 20), endpoint(81, 10, 10)}}
	var told []string
	for _, e := range judge(o).NotChecked {
		if e.Cause == string(observe.KindRequests) {
			told = append(told, e.Because)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "10.0.0.1:443, served by nginx: 30 %") {
		t.Errorf("told: %q, want the one endpoint with 30 %%", told)
	}
	o.Endpoints[0].TLSLibrary = "crypto/tls of go1.16.15"
	if got := overlapping(o); len(got) != 1 || !strings.Contains(got[0].Because, "HTTP/2 under crypto/tls of go1.16.15, which cannot be watched") {
		t.Errorf("what encrypts is not named: %v", got)
	}
	for port := range 20 {
		o.Endpoints = append(o.Endpoints, endpoint(9000+port, 100, 100))
	}
	if got := overlapping(o); len(got) != overlapTold+1 || !strings.Contains(got[overlapTold].Because, "16 more") {
		t.Errorf("of 21 endpoints %d lines are reported: %v", len(got), got)
	}
}
