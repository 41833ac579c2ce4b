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
