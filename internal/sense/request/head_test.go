package request

import (
	"encoding/hex"
	"strings"
	"testing"
)

const (
	someTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	otherTrace = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

func parentOf(trace string) string { return "00-" + trace + "-00f067aa0ba902b7-01" }

func TestTraceOf(t *testing.T) {
	long := "Cookie: " + strings.Repeat("x", headBytes)
	for _, c := range []struct {
		name, first string
		want        string // ID; "" none
		beyond      bool   // it may be in what was not kept
	}{
		{"first header", "GET / HTTP/1.1\r\ntraceparent: " + parentOf(someTrace) + "\r\nHost: a\r\n\r\n", someTrace, false},
		{"Go's spelling", "GET / HTTP/1.1\r\nHost: a\r\nTraceparent:\t" + parentOf(someTrace) + " \r\n\r\n", someTrace, false},
		{"found in what is cut", "GET / HTTP/1.1\r\ntraceparent: " + parentOf(someTrace) + "\r\nHost: a", someTrace, false},
		{"none", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", false},
		{"beyond what is kept", ("GET / HTTP/1.1\r\n" + long)[:headBytes], "", true},
		{"its line is cut", "GET / HTTP/1.1\r\ntraceparent: " + parentOf(someTrace)[:54], "", true},
		{"its line is cut after a version that goes on", "GET / HTTP/1.1\r\ntraceparent: " + parentOf(someTrace), "", true},
		{"in the body", "POST / HTTP/1.1\r\nHost: a\r\n\r\ntraceparent: " + parentOf(someTrace) + "\r\n\r\n", "", false},
		{"in the path", "GET /traceparent: " + parentOf(someTrace) + " HTTP/1.1\r\n\r\n", "", false},
		{"longer name", "GET / HTTP/1.1\r\nx-traceparent: " + parentOf(someTrace) + "\r\n\r\n", "", false},
		{"malformed", "GET / HTTP/1.1\r\ntraceparent: " + strings.ToUpper(parentOf(someTrace)) + "\r\n\r\n", "", false},
		{"twice the same", "GET / HTTP/1.1\r\ntraceparent: " + parentOf(someTrace) + "\r\nTraceparent: " + parentOf(someTrace) + "\r\n\r\n", someTrace, false},
		{"two that contradict", "GET / HTTP/1.1\r\ntraceparent: " + parentOf(someTrace) + "\r\ntraceparent: " + parentOf(otherTrace) + "\r\n\r\n", "", false},
		{"no request: the middle of one", "ody\r\ntraceparent: " + parentOf(someTrace) + "\r\n\r\n", "", false},
		{"nothing", "", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			trace, whole := traceOf([]byte(c.first))
			got := ""
			if trace.Known() {
				got = hex.EncodeToString(trace.ID[:])
			}
			if got != c.want || whole == c.beyond {
				t.Errorf("trace %q, whole %v", got, whole)
			}
		})
	}
}

// FuzzTraceOf: a trace is only found where its text is a header.
func FuzzTraceOf(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nTraceparent: " + parentOf(someTrace) + "\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\n\r\ntraceparent: " + parentOf(someTrace)))
	f.Fuzz(func(t *testing.T, first []byte) {
		trace, _ := traceOf(first[:min(len(first), headBytes)])
		if !trace.Known() {
			return
		}
		head, _, _ := strings.Cut(strings.ReplaceAll(string(first), "\r", ""), "\n\n")
		if at := strings.Index(head, hex.EncodeToString(trace.ID[:])); at < 0 || !strings.Contains(strings.ToLower(head[:at]), "\ntraceparent:") {
			t.Errorf("a trace out of nothing: %x in %q", trace.ID, first)
		}
	})
}

func BenchmarkReadHead(b *testing.B) {
	first := []byte("GET /cart/7 HTTP/1.1\r\nHost: shop.example:8080\r\nUser-Agent: Go-http-client/1.1\r\nAccept: application/json\r\nTraceparent: " +
		parentOf(someTrace) + "\r\nAccept-Encoding: gzip\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if trace, _ := traceOf(first); !trace.Known() {
			b.Fatal("no trace")
		}
	}
}
