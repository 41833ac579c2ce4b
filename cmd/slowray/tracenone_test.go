package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestNoTraceAmongSome: where connections were left out, a trace that was not seen may have
// been on one of those.
func TestNoTraceAmongSome(t *testing.T) {
	for follow, want := range map[uint32]string{8: "only 1 of 8 connections was followed: --budget 0 follows all", 1: "have to pass traceparent on"} {
		var out, told bytes.Buffer
		if err := (&hops{}).write(&streams{out: &out, err: &told}, "4bf92f35", follow); err != nil || !strings.Contains(told.String(), want) {
			t.Errorf("%d: %v, %s", follow, err, told.String())
		}
	}
}
