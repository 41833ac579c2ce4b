package report

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/shell"
)

// The summary says where most of the time went, in the tables of why, and the next command.
func TestRequestSummary(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	table := request.NewTable(start)
	table.Master = func(int) (int, string) { return 7, "nginx" }
	for i := range 100 {
		r := observe.Request{Side: observe.Served, StartNS: start.UnixNano() + int64(i)*1e7, NetNS: 1, PID: 7, Seq: uint32(i), Requests: 1, Weight: 1,
			Local: netip.MustParseAddrPort("10.0.0.1:80"), Peer: netip.MustParseAddrPort("10.0.0.9:999"), Status: observe.StatusOK, Followed: true}
		if i < 3 {
			r.Status = observe.StatusError
		}
		r.Ledger[observe.Server], r.Split[observe.ServerCall] = 40e6, 40e6
		table.Add(&r)
		r.Side, r.PID, r.Local, r.Peer, r.Followed = observe.Called, 7, r.Peer, netip.MustParseAddrPort("10.0.0.7:3306"), false
		r.Ledger[observe.Server] = 30e6
		table.Add(&r)
	}
	endpoints := table.Endpoints(start.Add(2*time.Second), nil)
	for _, width := range []int{60, 80, 100, 200} {
		var b bytes.Buffer
		if err := RequestSummary(&b, endpoints, 2, 4, shell.Line("slowray why --port %s", 80), Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		for _, want := range []string{
			"time breakdown", map[bool]string{true: "  nginx :80 ", false: "  10.0.0.1:80           nginx"}[width < 88],
			"server call 100 %", "Calls to other services", "  10.0.0.7:3306 ", "server 100 %\n",
			"\n100 requests and 100 calls in 2 s, 4 listed, most time in", "nginx :80 p99 40", "\nwhy: slowray why --port 80\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns: %q is not in\n%s", width, want, text)
			}
		}
		for line := range strings.Lines(text) {
			if n := len([]rune(line)) - 1; n > width {
				t.Errorf("%d columns, and a line of %d: %s", width, n, line)
			}
		}
		if width >= 100 && !strings.Contains(text, "ms, 3.0 % errors\n") {
			t.Errorf("%d columns: no errors in\n%s", width, text)
		}
	}
	var b bytes.Buffer
	if err := RequestSummary(&b, nil, 2, 0, shell.Command{}, Style{}); err != nil || b.Len() > 0 {
		t.Errorf("of no requests: %q, %v", b.String(), err)
	}
}
