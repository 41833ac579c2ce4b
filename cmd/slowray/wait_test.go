package main

import (
	"testing"

	"github.com/slowray/slowray/internal/sense/host"
)

// TestFirstOfContainers: whoever began a container is looked at, not who came later with a
// lower number, nor who is elsewhere or in a group that a user may name.
func TestFirstOfContainers(t *testing.T) {
	const group = "/kubepods/burstable/pod1/aaaaaaaaaaaa"
	procs := []host.ProcSample{
		{PID: 3, StartTicks: 900, Container: "aaaaaaaaaaaa", Cgroup: group},
		{PID: 4, StartTicks: 10, Container: "aaaaaaaaaaaa", Cgroup: "/user.slice/user-1000.slice/user@1000.service/aaaaaaaaaaaa"},
		{PID: 5, StartTicks: 10},
		{PID: 40, StartTicks: 100, Container: "aaaaaaaaaaaa", Cgroup: group},
		{PID: 41, StartTicks: 100, Container: "aaaaaaaaaaaa", Cgroup: group},
		{PID: 50, StartTicks: 100, Container: "bbbbbbbbbbbb", Cgroup: group},
		{PID: 60, StartTicks: 100, Container: "cccccccccccc", Cgroup: group},
	}
	got := firstOf(procs, "aaaaaaaaaaaa,cccccccccccc")
	if len(got) != 2 || got["aaaaaaaaaaaa"].PID != 40 || got["cccccccccccc"].PID != 60 {
		t.Errorf("%v", got)
	}
}
