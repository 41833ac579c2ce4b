package request

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// TestStreamsIdle: programs that every packet of the host pays for stay no longer than there
// is HTTP/2, and are not loaded again for each of its connections.
func TestStreamsIdle(t *testing.T) {
	began := time.Unix(1000, 0)
	s := streams{since: began}
	for _, step := range []struct {
		at          time.Duration
		connections int64
		idle        bool
	}{
		{5 * time.Second, 0, false}, {5100 * time.Millisecond, 0, true}, // it was something else
		{6 * time.Second, 1, false}, {60 * time.Second, 2, false}, {65 * time.Second, 0, false},
		{119 * time.Second, 0, false}, {121 * time.Second, 0, true},
	} {
		if got := s.idle(step.connections, began.Add(step.at)); got != step.idle {
			t.Errorf("after %v with %d connections: idle %v, want %v", step.at, step.connections, got, step.idle)
		}
	}
	if want := began.Add(5100*time.Millisecond + http2Again); !s.next.Equal(want) {
		t.Errorf("tried again from %v on, want %v", s.next, want)
	}
}

// TestStreamsOfTLS: requests that overlap under TLS bring no programs to every packet of the host,
// which could not read their frames; those in the clear do.
func TestStreamsOfTLS(t *testing.T) {
	for _, c := range []struct {
		proto uint8
		want  bool
	}{{protoSealed, false}, {0, true}} {
		r := Recorder{payload: true}
		r.decode(&record{kind: kindRequest, family: 4, proto: c.proto, flags: uint32(observe.FlagOverlapped)}, 0, 0)
		if r.streams.overlap != c.want {
			t.Errorf("protocol %d: %v, want %v", c.proto, r.streams.overlap, c.want)
		}
	}
}
