package main

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
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

// TestStatusOfWait: who is held up by short waits, or holds others up, is a finding; what is
// not seen of a database is not "nothing found".
func TestStatusOfWait(t *testing.T) {
	db := observe.WaitChain{End: observe.EndNoOwner, Hops: []observe.WaitHop{{Kind: observe.WaitTCP, Wants: observe.WantsData, Moving: true}, {Process: observe.WaitProcess{PID: 2, Comm: "postgres"}}}}
	lock := observe.WaitChain{End: observe.EndSleep, Hops: []observe.WaitHop{{Wants: observe.WantsRelease}, {}}}
	for _, c := range []struct {
		waits observe.Waits
		want  error
	}{
		{observe.Waits{}, nil},
		{observe.Waits{WindowNS: 100, Looked: 4, Brief: []observe.WaitShare{{Chain: lock, ThreadNS: 300}}}, exit(exitFindings)},
		{observe.Waits{WindowNS: 100, Looked: 4, Brief: []observe.WaitShare{{Chain: lock, ThreadNS: 100}}}, nil},
		{observe.Waits{Held: []observe.HeldLock{{Threads: 1}}}, exit(exitFindings)},
		{observe.Waits{Chains: []observe.WaitChain{db}}, exit(exitFailed)},
	} {
		if got := waitStatus(&c.waits); got != c.want {
			t.Errorf("%+v: %v, not %v", c.waits, got, c.want)
		}
	}
}
