package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/loadgen"
)

// Off a terminal there is a line for each block and each time of settling.
func TestTrialProgressOffATerminal(t *testing.T) {
	block := &experiment.Block{Seconds: 3, Good: 2436}
	var out bytes.Buffer
	p := newTrialProgress(&out, false)
	for _, s := range []experiment.Step{
		{Phase: "before", Settling: true, Round: 1, Of: 3},
		{Phase: "before", Round: 1, Of: 3},
		{Phase: "before", Round: 1, Block: 1, Of: 3, Last: block},
		{Phase: "with", Round: 2, Block: 3, Of: 3, Last: block},
		{Phase: "after", Round: 2, Block: 1, Of: 3, Last: block},
	} {
		p.show(s)
	}
	p.clear()
	want := `slowray: before the change: settling
slowray: before the change: 1 of 3 measured, 812/s good responses
slowray: round 2, with the change: 3 of 3 measured, 812/s good responses
slowray: round 2, after undoing it: 1 of 3 measured, 812/s good responses
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	newTrialProgress(&out, true).show(experiment.Step{Phase: "before", Settling: true})
	if out.Len() > 0 {
		t.Errorf("with --json: %s", out.String())
	}
}

// How long it takes is said beforehand, as far as that is known.
func TestMeasuringText(t *testing.T) {
	opt := experiment.Options{Blocks: 3, Length: 3 * time.Second}
	if got, want := measuringText(opt, nil), "measures for about 33 s (at most 10 min)"; got != want {
		t.Errorf("%s", got)
	}
	fixed, err := loadgen.Parse("./load.sh")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := measuringText(opt, &fixed), "runs the load 9 times or more"; got != want {
		t.Errorf("%s", got)
	}
}
