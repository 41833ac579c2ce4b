package web

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/slowray/slowray/internal/observe/observetest"
	"github.com/slowray/slowray/internal/store"
)

// TestBytesStay: requests are written as they were before.
func TestBytesStay(t *testing.T) {
	var list []store.Request
	text := ""
	for i, r := range observetest.Requests() {
		list = append(list, store.Request{Request: r, Process: observetest.Identities()[i], Why: store.Why(i % 3)})
		text += string(requestJSON(&list[i])) + "\n"
	}
	text += string(requestTable(list).csv())
	const want = "471864aff51426e3"
	if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:8]) != want {
		t.Errorf("%x, want %s:\n%s", sum[:8], want, text)
	}
}
