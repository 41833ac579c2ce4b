package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// A master, each of its workers, and nobody else of the same name belong together.
func TestFamily(t *testing.T) {
	o := &observe.Observation{Processes: []observe.Process{
		{PID: 10, PPID: 1, Comm: "gunicorn"},
		{PID: 11, PPID: 10, Comm: "gunicorn"},
		{PID: 12, PPID: 10, Comm: "gunicorn"},
		{PID: 13, PPID: 12, Comm: "sh"},
		{PID: 20, PPID: 1, Comm: "gunicorn"},
		{PID: 21, PPID: 20, Comm: "gunicorn"},
		{PID: 30, PPID: 31, Comm: "loop"}, // parents that were given out again
		{PID: 31, PPID: 30, Comm: "loop"},
	}}
	for pid, want := range map[int][]int{
		10: {10, 11, 12}, 12: {10, 11, 12}, 21: {20, 21}, 13: {13}, 99: nil,
	} {
		f := family{}
		f.add(o, pid)
		if got := slices.Sorted(maps.Keys(f)); !slices.Equal(got, want) {
			t.Errorf("family of %d: %v, want %v", pid, got, want)
		}
	}
	f := family{}
	f.add(o, 30)
	if !f[30] {
		t.Error("a process is not of its own family")
	}
}
