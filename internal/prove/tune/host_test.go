package tune

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/loadgen"
	"github.com/slowray/slowray/internal/prove/meter"
	"github.com/slowray/slowray/internal/watch"
)

// command is a load generator called wrk that runs a script.
func command(t *testing.T, script string) loadgen.Command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wrk")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := loadgen.Parse(path + " -d 10s http://127.0.0.1/")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAStuckLoadIsEnded(t *testing.T) {
	m := &bounded{&meter.Load{Command: command(t, "exec sleep 60")}}
	began := time.Now()
	b, err := m.Block(t.Context(), 100*time.Millisecond)
	if took := time.Since(began); err != nil || b.Good != 0 || b.Unanswered != 1 || took > loadGrace+2*time.Second {
		t.Errorf("%+v, %v, after %v", b, err, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Block(ctx, time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestALoadThatDoesNotRunIsTold(t *testing.T) {
	c := command(t, "echo 'unable to connect: refused' >&2; exit 1")
	h := &Host{Load: &c, Watch: watch.Options{For: time.Second}}
	end, err := h.underLoad(t.Context())
	if err == nil {
		err = end()
	}
	if err == nil || !strings.Contains(err.Error(), "unable to connect") {
		t.Errorf("error %v", err)
	}
}

func TestTheLoadRunsAgainUntilTheLookIsOver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs")
	c := command(t, "echo run >> "+file+"; sleep 0.2")
	h := &Host{Load: &c, Watch: watch.Options{For: time.Second}}
	end, err := h.underLoad(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	runs, _ := os.ReadFile(file)
	if n := strings.Count(string(runs), "run"); n < 1 || n > 3 { // one that ends at once is held back
		t.Errorf("%d runs in %v", n, loadWarm)
	}
}

func TestNothingToMeasureBy(t *testing.T) {
	h := &Host{}
	if h.CanMeasure() == nil {
		t.Error("without load and port something can be measured")
	}
	h.Watch.Filter = observe.Filter{Port: 80}
	if err := h.CanMeasure(); err != nil {
		t.Error(err)
	}
}

func TestOutcomeOfAnExperiment(t *testing.T) {
	began := time.Now()
	blocks := []experiment.Block{{Start: began.Add(time.Second), Seconds: 2, Requests: 100, Good: 80, Errors: 20, Unanswered: 4, P50: 5e6, P99: 7e7, Timed: 80}, {Seconds: 2}}
	r := &experiment.Result{Verdict: experiment.Proved, Why: "it came and went", Phases: []experiment.Phase{{Name: "before", Blocks: blocks}, {Name: "with", Blocks: blocks}}}
	r.Effects = []experiment.Effect{{Metric: "Tcp.Counter", Outcome: experiment.Better}}
	if o := outcome(r, began, nil); o.Verdict != Proved || o.Better {
		t.Errorf("proved by a counter only, which no user feels: %+v", o)
	}
	if o := outcome(r, began, []string{"Tcp.Counter"}); !o.Better {
		t.Errorf("clients are no longer turned away: %+v", o)
	}
	r.Effects = []experiment.Effect{{Metric: experiment.P99, Outcome: experiment.Better}}
	o := outcome(r, began, nil)
	if !o.Better || len(o.Blocks) != 4 || o.Blocks[2].Phase != With {
		t.Errorf("%+v", o)
	}
	if b := o.Blocks[0]; b.At != 1 || b.Good != 40 || *b.Errors != 12 || *b.P50 != 5 || *b.P99 != 70 {
		t.Errorf("block %+v", b)
	}
	if b := o.Blocks[1]; b.P50 != nil || b.Good != 0 {
		t.Errorf("block without requests %+v", b)
	}
	for from, to := range map[experiment.Verdict]Verdict{experiment.NoEffect: NoEffect, experiment.Worse: Worse, experiment.Undecided: Unclear, experiment.TooLittle: Unclear} {
		if got := outcome(&experiment.Result{Verdict: from}, began, nil); got.Verdict != to {
			t.Errorf("%s became %s", from, got.Verdict)
		}
	}
}

func TestCommandsOfWhatCannotBeMade(t *testing.T) {
	h := &Host{}
	if _, _, err := h.Commands([]cause.Change{{Kind: "unheard-of", Text: "x"}}); err == nil {
		t.Error("a change of a kind that nobody makes can be made")
	}
}
