package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestFleetWatchHangs: an archive that never answers is no "nothing happened"; that somebody
// stops it is no error.
func TestFleetWatchHangs(t *testing.T) {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(over)
	lasts := time.Second
	c := fleetWatchCmd{For: &lasts}
	c.From = "clickhouse://" + strings.TrimPrefix(server.URL, "http://") + "/slowray"
	if err := c.Run(t.Context(), &streams{io.Discard, io.Discard}); err == nil || !strings.Contains(err.Error(), "did not answer within 1s") {
		t.Errorf("the time is over: %v", err)
	}
	c.For = nil
	ctx, stop := context.WithTimeout(t.Context(), 0)
	stop()
	if err := c.Run(ctx, &streams{io.Discard, io.Discard}); err != nil {
		t.Errorf("stopped: %v", err)
	}
}
