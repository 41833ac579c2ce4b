package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/catalogue"
)

// The committed list is what the lab declares.
func TestIncidentsAreUpToDate(t *testing.T) {
	if diff := cmp.Diff(incidents(), catalogue.Incidents()); diff != "" {
		t.Errorf("internal/catalogue/incidents.json is not what the lab declares (run make docs):\n%s", diff)
	}
}
