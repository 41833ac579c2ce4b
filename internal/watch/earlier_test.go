package watch

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/host"
)

func TestOnlyWhoAskedWaitsForAnAnswer(t *testing.T) {
	const window = 5 * time.Second
	boot := 100 * time.Hour
	for _, c := range []struct {
		name         string
		q            host.QueueSample
		served, asks bool
	}{
		{"asked before the window, no answer", host.QueueSample{LastReceived: 7 * time.Second, LastSent: boot, NeverSent: true}, true, false},
		{"an answer before, asked again", host.QueueSample{LastReceived: 7 * time.Second, LastSent: 9 * time.Second}, true, false},
		{"answered", host.QueueSample{LastReceived: 9 * time.Second, LastSent: 7 * time.Second}, false, true},
		{"asked in the window", host.QueueSample{LastReceived: time.Second, LastSent: boot, NeverSent: true}, false, false},
		{"idle since its handshake", host.QueueSample{LastReceived: 7 * time.Second, LastSent: boot, NeverSent: true, NeverReceived: true}, false, false},
		{"greeted, and nothing came", host.QueueSample{LastReceived: 8 * time.Second, LastSent: 7 * time.Second, NeverReceived: true}, false, true},
		{"an answer lies unread", host.QueueSample{LastReceived: 8 * time.Second, LastSent: 7 * time.Second, Receive: 10}, false, false},
	} {
		if got := unanswered(&c.q, window); got != c.served {
			t.Errorf("%s: served without an answer: %v", c.name, got)
		}
		if got := waitsForAnswer(&c.q, window); got != c.asks {
			t.Errorf("%s: asks without an answer: %v", c.name, got)
		}
	}
}
