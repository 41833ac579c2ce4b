package observe

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

func TestParseTraceparent(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for value, want := range map[string]bool{
		"00-" + id + "-" + parent + "-01":                      true,
		"00-" + id + "-" + parent + "-00":                      true,
		"cc-" + id + "-" + parent + "-01":                      true,
		"cc-" + id + "-" + parent + "-01-what-will-be-next":    true,
		"cc-" + id + "-" + parent + "-01.what":                 false,
		"00-" + id + "-" + parent + "-01-more":                 false,
		"ff-" + id + "-" + parent + "-01":                      false,
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01": false,
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01":     false,
		"00-" + strings.ToUpper(id) + "-" + parent + "-01":     false,
		"00-" + id + "-" + parent + "-0":                       false,
		"00-" + id + "-" + parent + "_01":                      false,
		"00_" + id + "-" + parent + "-01":                      false,
		"0g-" + id + "-" + parent + "-01":                      false,
		"":                                                     false,
		" 00-" + id + "-" + parent + "-01":                     false,
	} {
		got, ok := ParseTraceparent(value)
		if ok != want || ok && (hex.EncodeToString(got.ID[:]) != id || hex.EncodeToString(got.Parent[:]) != parent) {
			t.Errorf("%q: %v, %v, want %v", value, got, ok, want)
		}
	}
}

func TestTraceMatch(t *testing.T) {
	trace, _ := ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	for text, want := range map[string]string{
		"4bf92f3577b34da6a3ce929d0e0e4736":  "true",
		"4bf92f35":                          "true",
		"4bf92f36":                          "false",
		"4bf92f3":                           "error",
		"4BF92F35":                          "error",
		"4bf92f3577b34da6a3ce929d0e0e47360": "error",
		"4bf92f3'":                          "error",
	} {
		m, err := ParseTraceMatch(text)
		got := fmt.Sprint(m.Has(&trace))
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	if m := TraceMatch("00000000"); m.Has(&Trace{}) {
		t.Error("a request without a trace is of the trace 00000000")
	}
}

// FuzzParseTraceparent: what is taken is written back as it was, but for the version and
// what follows.
func FuzzParseTraceparent(f *testing.F) {
	f.Add([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	f.Add([]byte("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"))
	f.Fuzz(func(t *testing.T, value []byte) {
		got, ok := ParseTraceparent(value)
		if !ok {
			if got != (Trace{}) {
				t.Errorf("%q is malformed, and %v", value, got)
			}
			return
		}
		if back := fmt.Sprintf("%x-%x-%02x", got.ID, got.Parent, got.Flags); back != string(value[3:traceparentLength]) {
			t.Errorf("%q became %q", value, back)
		}
	})
}
