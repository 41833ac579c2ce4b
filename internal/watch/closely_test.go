package watch

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestKeepsStacks: whole stacks stay in the Observation where a history is kept,
// and only what they tell of functions otherwise.
func TestKeepsStacks(t *testing.T) {
	for _, keep := range []bool{false, true} {
		done := make(chan struct{})
		close(done)
		s := &session{
			ctx: t.Context(),
			opt: Options{KeepStacks: keep},
			out: &observe.Observation{Profile: &observe.Profile{Hz: 97, Processes: []observe.ProfileProcess{{PID: 7, Comm: "app", Samples: 100}}}},
		}
		c := &closely{cancel: func() {}, done: done, stacks: &observe.Stacks{
			Types:  []observe.StackValue{{Type: "samples", Unit: "count"}},
			Frames: []observe.Frame{{Name: "work", Kind: observe.FramePython}}, Samples: []observe.StackSample{{PID: 7, Comm: "app", Frames: []int32{0}, Values: []int64{50}}},
		}}
		c.stop(s)
		if len(s.out.Profile.Processes[0].Functions) != 1 || s.out.Profile.Processes[0].Functions[0].Name != "work" {
			t.Errorf("keep %t: the profile has %+v", keep, s.out.Profile.Processes[0])
		}
		if (s.out.Stacks != nil) != keep {
			t.Errorf("keep %t: the stacks are %+v", keep, s.out.Stacks)
		}
	}
}

// TestRarely: how much less often things are looked at has its bounds.
func TestRarely(t *testing.T) {
	for set, want := range map[int]int{-1: 1, 0: 1, 1: 1, 4: 4, 100: 6} {
		if got := (&Options{SampleInterval: set}).sampleInterval(); int(got) != want {
			t.Errorf("%d: %d, want %d", set, got, want)
		}
	}
}

// TestComputesOrWaits: requests that are slow for something else than what they compute
// are no reason to load the unwinder, whether one process answers them or many do.
func TestComputesOrWaits(t *testing.T) {
	slow := func(computed int64) observe.Request {
		r := observe.Request{Side: observe.Served, Followed: true}
		r.Ledger[observe.Server] = 400e6
		r.Split[observe.ServerCPU], r.Split[observe.ServerLock] = computed, 400e6-computed
		return r
	}
	busy := func(cpu float64) []observe.RunSpan {
		return []observe.RunSpan{{Seconds: 0.25, CPU: cpu / 4}, {Seconds: 0.5, CPU: cpu / 4}, {Seconds: 0.75, CPU: cpu / 4}, {Seconds: 1, CPU: cpu / 4}}
	}
	for _, c := range []struct {
		name     string
		computed int64
		workers  int
		cpu      float64 // of each
		want     bool
	}{
		{"they compute", 200e6, 1, 0.6, true},
		{"they wait", 20e6, 1, 0.6, false},
		{"they wait for a thread that always computes", 20e6, 1, 0.97, true},
		{"workers that compute", 200e6, 8, 0.1, true},
		{"workers that wait", 20e6, 8, 0.1, false},
	} {
		q := newSlowRequests()
		w := &closely{requests: &requests{slow: q}, threads: &threads{spans: map[int][]observe.RunSpan{}}, use: &use{}}
		s := &session{out: &observe.Observation{}}
		for n := range 16 {
			r := slow(c.computed)
			r.PID, r.Seq = 100+n%c.workers, uint32(n)
			q.note(&r)
		}
		for n := range c.workers {
			s.serving = append(s.serving, 100+n)
			w.threads.spans[100+n] = busy(c.cpu)
		}
		if got := len(w.computing(s)) > 0; got != c.want {
			t.Errorf("%s: looked at %t, want %t", c.name, got, c.want)
		}
	}
}
