package export

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/observe/observetest"
	"github.com/slowray/slowray/internal/store"
)

// TestSpansStay: requests are sent as they were before.
func TestSpansStay(t *testing.T) {
	var all []byte
	for i, r := range observetest.Requests() {
		s := span(&store.Request{Request: r, Process: observetest.Identities()[i], Why: store.Why(i % 3)})
		s.TraceId, s.SpanId = nil, nil
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	const want = "8484124ac4610823"
	if sum := sha256.Sum256(all); hex.EncodeToString(sum[:8]) != want {
		t.Errorf("%x, want %s", sum[:8], want)
	}
}
