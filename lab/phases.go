package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

const (
	phaseWarm   = 1500 * time.Millisecond // load before a phase is looked at
	phaseWindow = 4 * time.Second
	lossyWindow = 10 * time.Second        // a rare event takes long to count
	phaseAfter  = 1500 * time.Millisecond // slowray takes some time to begin
)

// PhaseResult is one state of the network: what the clients and the link
// counted, and what slowray says.
type PhaseResult struct {
	Name    string        `json:"name"`
	RTT     time.Duration `json:"added_rtt_ns"`
	Rate    float64       `json:"good_per_second"` // as the clients counted
	Latency time.Duration `json:"latency_ns"`      // mean, as the clients saw it
	Bad     int64         `json:"bad"`
	Others  float64       `json:"others"` // share of the machine's CPU time that was used outside the sandbox
	Wires   wires         `json:"wires"`

	Served   *Endpoint `json:"served,omitempty"`   // the application's requests
	Database *Endpoint `json:"database,omitempty"` // the application's calls of its database
}

// phases runs an incident that has phases instead of faults.
func (r *runner) phases(ctx context.Context) (list []PhaseResult, reasons []string, err error) {
	each := phaseWarm + lossyWindow + phaseAfter
	box, err := sandbox.Open(ctx, r.lock, r.boxOptions(nil, time.Duration(len(r.Phases))*(each+verdictTime)+time.Minute))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	if _, err := server.Start(ctx, box, r.exe, r.Setup(), r.plan); err != nil {
		return nil, nil, err
	}
	for _, p := range r.Phases {
		r.print.progress(p.Name)
		result, problem, err := r.phase(ctx, box, p)
		for ; err == nil && result.Others > othersMax && r.patience > 0; r.patience-- {
			r.print.progress(fmt.Sprintf("other programs used %.0f %% of the CPUs; %s again", 100*result.Others, p.Name))
			result, problem, err = r.phase(ctx, box, p)
		}
		if err != nil {
			return list, reasons, fmt.Errorf("%s: %w", p.Name, err)
		}
		if problem != "" {
			reasons = append(reasons, p.Name+": "+problem)
		}
		list = append(list, result)
	}
	return list, append(reasons, judgePhases(r.Phases, list, !r.opt.TruthOnly)...), nil
}

// phase sets the network, makes the load and has slowray look meanwhile.
func (r *runner) phase(ctx context.Context, box *sandbox.Box, p incident.Phase) (result PhaseResult, problem string, err error) {
	toServer, toClient := p.Clients()
	box.Front.Link.Set(link.AtoB, toServer)
	box.Front.Link.Set(link.BtoA, toClient)
	box.Back.Link.Set(link.BtoA, p.Database())
	result = PhaseResult{Name: p.Name, RTT: p.RTT}
	window := phaseWindow
	if p.Loss() > 0 {
		window = lossyWindow
	}
	t, err := r.startLoad(ctx, box, r.Load, phaseWarm+window+phaseAfter, 0)
	if err != nil {
		return result, "", err
	}
	if err := pause(ctx, phaseWarm); err != nil {
		return result, "", err
	}
	before, others, began := readWires(box), otherProcesses(box.PID()), time.Now()
	if r.opt.TruthOnly {
		err = pause(ctx, window)
	} else {
		problem, err = r.record(ctx, box, window, &result)
	}
	if err != nil {
		return result, "", err
	}
	result.Wires = before.until(readWires(box))
	result.Others = usedBetween(others, otherProcesses(box.PID())) / (time.Since(began).Seconds() * float64(runtime.NumCPU()))
	outcome, err := t.end(ctx)
	if err != nil {
		return result, "", err
	}
	// Load that outlasts its phase would be part of the next one.
	os.Remove(t.out)
	result.Rate, result.Latency, result.Bad = outcome.GoodRate(), outcome.Mean, outcome.Bad()
	return result, problem, nil
}

// record has slowray look for the window and takes its figures. They are held against
// those of the link, packet by packet: they have to be counts, not estimates.
func (r *runner) record(ctx context.Context, box *sandbox.Box, window time.Duration, result *PhaseResult) (problem string, err error) {
	short := *r
	short.opt.Window, short.counted = window, true
	report, err := short.slowray(ctx, box)
	if err != nil || report.Problem != "" {
		return report.problem(), err
	}
	result.Served = report.endpoint("served", report.netns, r.plan.FrontPort)
	result.Database = report.endpoint("called", report.netns, r.plan.BackPort)
	return "", nil
}

func (r *Report) problem() string {
	if r == nil {
		return ""
	}
	return r.Problem
}
