package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// shownEnd is one end of a request as the page's script gets it.
type shownEnd struct {
	ID      string
	Side    string
	Label   string
	Total   float64            `json:"total_us"`
	Ledger  map[string]float64 `json:"ledger_us"`
	Trace   string             `json:"trace_id"`
	Parent  string             `json:"parent_span_id"`
	Port    int
	Process struct{ Comm string }
}

type shownHop struct {
	Depth          int
	Called, Served *shownEnd
}

// traceOnPage looks at one trace of the services as the page shows it: each request under the
// one that it was made for, with the ledgers that the collector has of it.
func traceOnPage(t *testing.T, page, id string, spans traceSpans, services []string) {
	t.Helper()
	base, _, _ := strings.Cut(page, "#")
	var list struct{ Requests []struct{ Hops []shownHop } }
	now := time.Now()
	askPage(t, base, "api/requests", url.Values{"paths": {"1"}, "trace": {id}, "from": {fmt.Sprint(now.Add(-5 * time.Minute).Unix())}, "to": {fmt.Sprint(now.Unix() + 1)}}, &list)
	if len(list.Requests) != 1 || len(list.Requests[0].Hops) != len(services) {
		t.Fatalf("trace %s: %+v, want one line of %d hops", id, list.Requests, len(services))
	}
	hops := list.Requests[0].Hops
	for n, hop := range hops {
		if hop.Depth != n || hop.Called == nil || hop.Served == nil {
			t.Fatalf("hop %d: %+v, want both its ends, under the one before", n, hop)
		}
		if hop.Served.Process.Comm != services[n] || !strings.HasPrefix(hop.Served.Label, "GET /cart/7") {
			t.Errorf("hop %d: %s answers %q, want %s", n, hop.Served.Process.Comm, hop.Served.Label, services[n])
		}
		for _, end := range []*shownEnd{hop.Called, hop.Served} {
			spans.check(t, end)
		}
	}
	seen := readPage(t, base, "#/?view=request&id="+url.QueryEscape(hops[1].Served.ID))
	if seen == nil {
		return
	}
	if len(seen) != len(services) {
		t.Fatalf("the page draws %+v, want %d steps", seen, len(services))
	}
	for n, row := range seen {
		end := hops[n].Served
		if row.Depth != fmt.Sprint(n) || row.Who != services[n] || row.Port != fmt.Sprintf(":%d", end.Port) || row.Here != (n == 1) {
			t.Errorf("step %d on the page: %+v, want %s :%d, and step 1 as the one that was chosen", n, row, services[n], end.Port)
		}
		if !strings.Contains(row.Text, "GET /cart/7") || !strings.ContainsAny(row.Text, "µms") {
			t.Errorf("step %d on the page says %q: no label, or no part of its ledger", n, row.Text)
		}
		// The parts that are drawn are as long as the request, next to the first one's; none is
		// narrower than one that can be seen, of the 1000 that the picture is wide.
		const leastWidth = 0.6
		want := seen[0].Width * end.Total / hops[0].Served.Total
		if row.Parts == 0 || apart(row.Width, want) > leastWidth*float64(row.Parts+seen[0].Parts) {
			t.Errorf("step %d on the page: %d parts are %.1f wide, want %.1f, of the ledger %v", n, row.Parts, row.Width, want, end.Ledger)
		}
	}
}

// complete gives a trace that has so many ends of slowray's, and those.
func (c *spanCollector) complete(ends int) (trace string, spans traceSpans) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[string]traceSpans{}
	for _, s := range c.spans {
		if s.ParentSpanId != nil && slices.ContainsFunc(attributesOf(s), func(a string) bool { return strings.HasPrefix(a, "slowray.side=") }) {
			id := fmt.Sprintf("%x", s.TraceId)
			by[id] = append(by[id], s)
		}
	}
	for id, spans := range by {
		if len(spans) == ends {
			return id, spans
		}
	}
	return "", nil
}

func attributesOf(s *tracepb.Span) (list []string) {
	for _, a := range s.Attributes {
		list = append(list, a.Key+"="+a.Value.GetStringValue())
	}
	return list
}

// traceSpans are slowray's spans of one trace.
type traceSpans []*tracepb.Span

// check compares what the page has of a request with its span.
func (list traceSpans) check(t *testing.T, end *shownEnd) {
	t.Helper()
	kind := tracepb.Span_SPAN_KIND_SERVER
	if end.Side == "called" {
		kind = tracepb.Span_SPAN_KIND_CLIENT
	}
	at := slices.IndexFunc(list, func(s *tracepb.Span) bool {
		return s.Kind == kind && fmt.Sprintf("%x", s.ParentSpanId) == end.Parent && fmt.Sprintf("%x", s.TraceId) == end.Trace
	})
	if at < 0 {
		t.Errorf("%s of %s: the collector has no span under %s", end.Side, end.Process.Comm, end.Parent)
		return
	}
	span, sum := list[at], 0.0
	took := float64(span.EndTimeUnixNano-span.StartTimeUnixNano) / 1e3
	for part, us := range end.Ledger {
		if part != "ack_delay" && !strings.Contains(part, ".") {
			sum += us
		}
	}
	// A store keeps microseconds.
	const rounded = 12
	if apart(sum, end.Total) > rounded || apart(took, end.Total) > rounded {
		t.Errorf("%s of %s: the page has %.0f µs, its parts are %.0f together, its span took %.0f", end.Side, end.Process.Comm, end.Total, sum, took)
	}
	parts := 0
	for _, a := range span.Attributes {
		if part, ok := strings.CutPrefix(a.Key, "slowray.ledger_us."); ok {
			us := a.Value.GetDoubleValue() + float64(a.Value.GetIntValue())
			if parts++; apart(us, end.Ledger[part]) > 1 {
				t.Errorf("%s of %s: %s is %.3f µs at the collector, %.3f on the page", end.Side, end.Process.Comm, part, us, end.Ledger[part])
			}
		}
	}
	if parts == 0 {
		t.Errorf("%s of %s: its span has no ledger", end.Side, end.Process.Comm)
	}
}

func apart(a, b float64) float64 { return max(a-b, b-a) }

// askPage reads what the page's script asks for.
func askPage(t *testing.T, base, path string, query url.Values, into any) {
	t.Helper()
	resp, err := http.Get(strings.TrimSuffix(base, "/") + "/" + path + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d: %v", path, resp.StatusCode, err)
	}
}

// shownStep is a step of a request's path as the page draws it.
type shownStep struct {
	Depth, Who, Port, Text string
	Parts                  int
	Width                  float64
	Here                   bool
}

// readSteps reads the rows of a drawn path.
const readSteps = `[...document.querySelectorAll(".waterfall.path .wf-row.hop")].map((row) => ({
	Depth: row.dataset.hop, Who: row.querySelector(".wf-name a").innerText.trim(), Port: row.querySelector(".wf-name span.mono").innerText.trim(),
	Text: row.querySelector(".wf-text").innerText, Parts: row.querySelectorAll(".wf-svg rect:not(.wire)").length, Here: row.classList.contains("here"),
	Width: [...row.querySelectorAll(".wf-svg rect:not(.wire)")].reduce((sum, x) => sum + Number(x.getAttribute("width")), 0),
}))`

// readPage gives the steps that Chromium draws at an address of the page.
func readPage(t *testing.T, base, address string) (steps []shownStep) {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Log("SKIPPED in part: the page is not tried in a browser: no Chromium (apt-get install chromium)")
		return nil
	}
	dir, err := os.MkdirTemp("", "slowray-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Minute)
	defer stop()
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program), chromedp.UserDataDir(dir), chromedp.Env("TMPDIR="+dir, "TZ=UTC"), chromedp.WSURLReadTimeout(2 * time.Minute)}
	for _, name := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(name, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	defer end()
	ctx, leave := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // events that chromedp does not know
	defer leave()
	defer func() { _ = chromedp.Cancel(ctx) }() // waits until the browser has ended
	chromedp.ListenTarget(ctx, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			t.Errorf("page: %s", e.ExceptionDetails.Error())
		}
	})
	err = chromedp.Run(ctx, emulation.SetDeviceMetricsOverride(1440, 900, 1, false), chromedp.Navigate(base+address),
		chromedp.Poll(`document.querySelector(".wf-row.sum") !== null`, nil, chromedp.WithPollingTimeout(2*time.Minute)), // the request is drawn
		chromedp.Evaluate(readSteps, &steps))
	if err != nil {
		t.Fatalf("page: %v", err)
	}
	return steps
}
