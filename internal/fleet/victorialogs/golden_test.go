package victorialogs

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe/observetest"
	"github.com/slowray/slowray/internal/store"
)

// TestBytesStay: the lines are what they were before.
func TestBytesStay(t *testing.T) {
	var l lines
	host := &fleet.Host{Name: "web-1", ID: "1", Labels: map[string]string{"rack": "7"}}
	for i, r := range observetest.Requests() {
		l.request(host, fleet.Position(i+1), &store.Request{Request: r, Process: observetest.Identities()[i], Why: store.Why(i % 3)})
	}
	for i, e := range observetest.Seconds() {
		l.second(host, fleet.Position(i+1), &store.Second{At: 1_790_000_000, Endpoint: e, Process: observetest.Identities()[i]})
	}
	const want = "9b71e7f850507cc5"
	if sum := sha256.Sum256(l.b); hex.EncodeToString(sum[:8]) != want {
		t.Errorf("%x, want %s:\n%s", sum[:8], want, l.b)
	}
}
