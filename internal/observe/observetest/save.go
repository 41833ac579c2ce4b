// Package observetest saves Observations for tests.
//
// In: an Observation. Out: a file as slowray why --save writes it.
package observetest

import (
	"errors"
	"os"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// Save writes o to a file.
func Save(t testing.TB, path string, o *observe.Observation) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(observe.Write(f, o), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
