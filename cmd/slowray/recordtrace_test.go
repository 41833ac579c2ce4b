package main

import (
	"bufio"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// TestLedgersJoinTraces runs three services that OpenTelemetry's SDK instruments (lab/otel),
// each in a process of its own. Their spans and those of slowray record go to one collector:
// there each of slowray's hangs under the span that sent the request. The page shows the
// requests of a trace, with the same ledgers.
func TestLedgersJoinTraces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root, to load BPF programs")
	}
	if testing.Short() {
		t.Skip("SKIPPED: -short: builds the SDK")
	}
	program := filepath.Join(t.TempDir(), "otel")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "lab", "otel")
	if out, err := build.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "dial tcp") {
			t.Skipf("SKIPPED: OpenTelemetry's SDK cannot be downloaded: %s", out)
		}
		t.Fatalf("build lab/otel: %v: %s", err, out)
	}
	collector := &spanCollector{}
	receiving := httptest.NewServer(collector)
	t.Cleanup(receiving.Close)
	page := startExporting(t, "--otlp", receiving.URL, "--slow", "1us", "--labels", "--budget", "0") // each request has its record

	const requests, hops = 300, 3
	url := ""
	var end []func()
	services := []string{"shop", "cart", "stock"}
	for _, name := range slices.Backward(services) {
		own := filepath.Join(filepath.Dir(program), name) // what the kernel calls it
		if err := os.Symlink(program, own); err != nil {
			t.Fatal(err)
		}
		service := exec.Command(own, "-name", name, "-next", url, "-otlp", receiving.URL)
		service.Stderr = os.Stderr
		in, err := service.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := service.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := service.Start(); err != nil {
			t.Fatal(err)
		}
		end = append(end, func() { in.Close(); _ = service.Wait() })
		if url, err = bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		url = strings.TrimSpace(url)
	}
	load := exec.Command(program, "-load", url, "-requests", fmt.Sprint(requests), "-otlp", receiving.URL)
	out, err := load.CombinedOutput()
	for _, f := range end {
		f()
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A connection that rests is asked for its last request after three seconds.
	var j joined
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if j = collector.joined(); j.called == requests*hops && j.served == requests*hops {
			break
		}
	}
	// Whatever is lost, a trace with all of its ends is shown.
	if id, spans := collector.complete(2 * hops); id != "" {
		traceOnPage(t, page, id, spans, services)
	} else if !lostRecords(t, page) {
		t.Error("no trace has all of its ends at the collector")
	}
	if lostRecords(t, page) {
		return
	}
	t.Logf("%d spans of the SDK that call; slowray: %d calls and %d served under them, %d ends linked, %d wrong", j.sdk, j.called, j.served, j.linked, j.wrong)
	const least = requests * hops * 95 / 100
	if j.sdk != requests*hops || j.called < least || j.served < least || j.linked < least || j.wrong > 0 {
		t.Errorf("want %d calls, at least %d ends of each kind joined and linked, and none wrong", requests*hops, least)
	}
}

// joined is what of slowray's spans fits the SDK's.
type joined struct{ sdk, called, served, linked, wrong int }

func (c *spanCollector) joined() (j joined) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type spanID struct{ trace, span string }
	calls, ours := map[spanID]*tracepb.Span{}, map[spanID]bool{}
	var ends []*tracepb.Span
	for _, s := range c.spans {
		id := spanID{string(s.TraceId), string(s.SpanId)}
		side := ""
		for _, a := range s.Attributes {
			if a.Key == "slowray.side" {
				side = a.Value.GetStringValue()
			}
		}
		switch {
		case side != "":
			ours[id] = true
			ends = append(ends, s)
		case s.Kind == tracepb.Span_SPAN_KIND_CLIENT:
			calls[id] = s
		}
	}
	j.sdk = len(calls)
	const clocks = uint64(5 * time.Millisecond)
	for _, s := range ends {
		if s.ParentSpanId == nil {
			continue // without a trace: exports of the services
		}
		call := calls[spanID{string(s.TraceId), string(s.ParentSpanId)}]
		switch {
		case call == nil || s.StartTimeUnixNano+clocks < call.StartTimeUnixNano || s.StartTimeUnixNano > call.EndTimeUnixNano+clocks:
			j.wrong++
		case s.Kind == tracepb.Span_SPAN_KIND_CLIENT:
			j.called++
		default:
			j.served++
			for _, l := range s.Links {
				if ours[spanID{string(l.TraceId), string(l.SpanId)}] {
					j.linked++
				}
			}
		}
	}
	return j
}
