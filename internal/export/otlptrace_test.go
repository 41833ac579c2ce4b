package export

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// bothEndsOf is one request as its two ends recorded it.
func bothEndsOf(traceparent string) (called, served store.Request) {
	trace, _ := observe.ParseTraceparent(traceparent)
	called.Request = observe.Request{
		Side: observe.Called, StartNS: time.Unix(1_790_000_000, 0).UnixNano(), Seq: 3, Requests: 1, Weight: 1, Trace: trace, Label: "POST /pay",
		Local: netip.MustParseAddrPort("10.0.0.1:40001"), Peer: netip.MustParseAddrPort("[::ffff:10.0.0.2]:8080"), HTTP: 200,
	}
	called.Ledger[observe.Server] = 5_000_000
	served = called
	served.Side, served.Local, served.Peer = observe.Served, netip.MustParseAddrPort("10.0.0.2:8080"), netip.MustParseAddrPort("10.0.0.1:40001")
	return called, served
}

func textAttributes(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

func TestSpanJoinsItsTrace(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	c, s := bothEndsOf("00-" + id + "-" + parent + "-01")
	called, served := span(&c), span(&s)
	for _, got := range []*tracepb.Span{called, served} {
		if hex.EncodeToString(got.TraceId) != id || hex.EncodeToString(got.ParentSpanId) != parent {
			t.Errorf("%v: trace %x, parent %x", got.Kind, got.TraceId, got.ParentSpanId)
		}
		for key, want := range map[string]string{
			"network.protocol.name": "http", "network.protocol.version": "1.1", "network.type": "ipv4", "http.request.method": "POST", "url.path": "/pay", "server.address": "10.0.0.2",
		} {
			if v := textAttributes(got)[key]; v != want {
				t.Errorf("%v: %s is %q, want %q", got.Kind, key, v, want)
			}
		}
	}
	if called.Kind != tracepb.Span_SPAN_KIND_CLIENT || served.Kind != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("kinds %v, %v", called.Kind, served.Kind)
	}
	if bytes.Equal(called.SpanId, served.SpanId) || len(served.Links) != 1 || !bytes.Equal(served.Links[0].SpanId, called.SpanId) {
		t.Errorf("the served end links to %v, not to %x", served.Links, called.SpanId)
	}
	if again := span(&c); !bytes.Equal(again.SpanId, called.SpanId) {
		t.Error("a span sent twice has two numbers")
	}
	c.Seq++
	if next := span(&c); bytes.Equal(next.SpanId, called.SpanId) {
		t.Error("two requests of a connection have one number")
	}
}

// TestSpanOfAThread: the ends of a request that carries no trace are under spans of two
// threads, so neither knows the number of the other's span.
func TestSpanOfAThread(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	_, s := bothEndsOf("00-" + id + "-" + parent + "-01")
	s.Flags |= observe.FlagThreadContext
	got := span(&s)
	if hex.EncodeToString(got.TraceId) != id || hex.EncodeToString(got.ParentSpanId) != parent || len(got.Links) != 0 {
		t.Errorf("trace %x, parent %x, links %v", got.TraceId, got.ParentSpanId, got.Links)
	}
}

// TestSpanOfAnUnsampledTrace: nobody sends the spans of that trace, so one more would hang on
// nothing.
func TestSpanOfAnUnsampledTrace(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	c, _ := bothEndsOf("00-" + id + "-" + parent + "-00")
	got := span(&c)
	if hex.EncodeToString(got.TraceId) == id || got.ParentSpanId != nil {
		t.Errorf("trace %x, parent %x", got.TraceId, got.ParentSpanId)
	}
	if len(got.Links) != 1 || hex.EncodeToString(got.Links[0].TraceId) != id || hex.EncodeToString(got.Links[0].SpanId) != parent {
		t.Errorf("links %v", got.Links)
	}
}

// TestSpanOfABatch: a span that is sent twice is the same one, whether it carried a trace or
// not, and one with a parent is in its parent's trace.
func TestSpanOfABatch(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for carried, joins := range map[string]bool{"": false, "00-" + id + "-" + parent + "-00": false, "00-" + id + "-" + parent + "-01": true} {
		_, s := bothEndsOf(carried)
		h := &BatchHost{ID: "host-1"}
		sent := func(number uint64) *tracepb.Span {
			got := span(&s)
			h.identify(got, &BatchRequest{Number: number, Request: s})
			return got
		}
		one, again := sent(7), sent(7)
		if !bytes.Equal(one.TraceId, again.TraceId) || !bytes.Equal(one.SpanId, again.SpanId) {
			t.Errorf("%q: sent twice it is %x %x and %x %x", carried, one.TraceId, one.SpanId, again.TraceId, again.SpanId)
		}
		if in := hex.EncodeToString(one.TraceId) == id; in != joins || (len(one.ParentSpanId) > 0) != joins {
			t.Errorf("%q: trace %x, parent %x", carried, one.TraceId, one.ParentSpanId)
		}
		s.Seq++
		if next := sent(8); bytes.Equal(next.SpanId, one.SpanId) {
			t.Errorf("%q: two requests have one number", carried)
		}
	}
}

func TestSpanOfGRPC(t *testing.T) {
	c, _ := bothEndsOf("")
	c.Label, c.Flags = "POST /shop.Cart/Get gRPC 14", observe.FlagMultiplexed
	got := span(&c)
	for key, want := range map[string]string{"network.protocol.version": "2", "url.path": "/shop.Cart/Get", "rpc.system.name": "grpc", "rpc.method": "shop.Cart/Get", "rpc.response.status_code": "UNAVAILABLE"} {
		if v := textAttributes(got)[key]; v != want {
			t.Errorf("%s is %q, want %q", key, v, want)
		}
	}
	c.Label = "POST /shop.Cart/Get gRPC 4711"
	if v := textAttributes(span(&c))["rpc.response.status_code"]; v != "4711" {
		t.Errorf("a status without a name is %q", v)
	}
}

func TestSpanWithoutATrace(t *testing.T) {
	c, _ := bothEndsOf("")
	one, two := span(&c), span(&c)
	if one.ParentSpanId != nil || one.Links != nil || bytes.Equal(one.TraceId, two.TraceId) {
		t.Errorf("%v, %v", one, two)
	}
}
