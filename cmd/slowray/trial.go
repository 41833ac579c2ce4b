package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/loadgen"
)

// measuringText says beforehand how long an experiment takes.
func measuringText(opt experiment.Options, load *loadgen.Command) string {
	if load != nil && !load.Adjustable() {
		return fmt.Sprintf("runs the load %d times or more", 3*opt.Blocks)
	}
	return fmt.Sprintf("measures for about %s (at most %s)", minutes(opt.Shortest()), minutes(opt.Longest()))
}

// minutes writes a duration without more digits than an estimate has.
func minutes(d time.Duration) string {
	if d < 100*time.Second {
		return figure.Seconds(d.Round(time.Second).Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// trialProgress tells how far an experiment is: on a terminal in one line, which is gone
// at the end, else in a line for each block.
type trialProgress struct {
	w     io.Writer
	quiet bool

	mu    sync.Mutex // a step may come while the experiment ends
	stage *commandline.Stage
}

func newTrialProgress(w io.Writer, quiet bool) *trialProgress {
	return &trialProgress{w: w, quiet: quiet}
}

func (p *trialProgress) show(s experiment.Step) {
	text := stepText(&s)
	switch {
	case p.quiet:
	case commandline.Redraws(p.w):
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.stage == nil {
			p.stage = commandline.NewTimedStage(p.w, text, "Ctrl-C: put back and end", s.Left)
		}
		if s.Left > 0 {
			p.stage.ShowLeft(text, s.Left)
		} else {
			p.stage.Show(text, -1)
		}
	case s.Settling || s.Block > 0:
		fmt.Fprintf(p.w, "slowray: %s\n", text)
	}
}

// stepText is a step in words.
func stepText(s *experiment.Step) string {
	text := map[string]string{"before": "before the change", "with": "with the change", "after": "after undoing it"}[s.Phase]
	if s.Round > 1 {
		text = fmt.Sprintf("round %d, %s", s.Round, text)
	}
	if s.Settling {
		return text + ": settling"
	}
	text += fmt.Sprintf(": %d of %d measured", s.Block, s.Of)
	if s.Last != nil && s.Last.Seconds > 0 {
		e := experiment.Effect{Unit: "1/s"}
		text += fmt.Sprintf(", %s good responses", e.Figure(float64(s.Last.Good)/s.Last.Seconds))
	}
	return text
}

func (p *trialProgress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage != nil {
		p.stage.Clear()
		p.stage = nil
	}
}
