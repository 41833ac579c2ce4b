package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// tracedShop is shop, where all but the database carry the trace, and as much again of
// another trace.
func tracedShop() []store.Request {
	var all []store.Request
	for n := range byte(2) {
		for i, r := range shop() {
			if r.Process.Comm == "mariadbd" || r.Peer.Port() == 3306 {
				continue
			}
			r.StartNS += int64(n) * 300 * ms
			r.Trace = observe.Trace{ID: [16]byte{0xab, 0xcd, 0xef, 0x10 + n, 15: 1}, Parent: [8]byte{byte(1 + i/2)}, Flags: observe.TraceSampled}
			all = append(all, r)
		}
	}
	return all
}

func TestTraceOnThePage(t *testing.T) {
	h := serve(t, &memory{reqs: tracedShop(), from: noon, to: noon.Add(time.Minute)}, Options{})
	at := fmt.Sprintf("&from=%d&to=%d", noon.Unix(), noon.Add(time.Minute).Unix())
	type hop struct {
		Depth          int
		Chosen         bool
		Called, Served *struct{ ID string }
	}
	type request struct {
		ID      string
		TraceID string `json:"trace_id"`
		Hops    []hop
	}
	for trace, want := range map[string]int{"abcdef10000000000000000000000001": 1, "abcdef11": 1, "abcdef99": 0} {
		a := ask[struct{ Requests []request }](t, h, "/api/requests?paths=1&trace="+trace+at)
		if len(a.Requests) != want {
			t.Errorf("%s: %d requests, want %d", trace, len(a.Requests), want)
		}
		for _, r := range a.Requests {
			if !strings.HasPrefix(r.TraceID, trace) || len(r.Hops) != 2 || r.Hops[0].Depth != 0 || r.Hops[1].Depth != 1 || r.Hops[1].Called == nil || r.Hops[1].Served == nil {
				t.Errorf("%s: %+v", trace, r)
			}
			if one := ask[request](t, h, "/api/request?id="+url.QueryEscape(r.ID)); len(one.Hops) != 2 || !one.Hops[0].Chosen {
				t.Errorf("the request's own path: %+v", one.Hops)
			}
		}
	}
	if w := get(t, h, "/api/requests?trace=ABC"); w.Code != http.StatusBadRequest {
		t.Errorf("a trace that is none: status %d", w.Code)
	}
}
