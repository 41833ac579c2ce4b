package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/diagnose/consistency"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// Report is the part of slowray's JSON report that the lab judges.
type Report struct {
	Schema   string    `json:"schema"`
	Findings []Finding `json:"findings"`
	RuledOut []Ruling  `json:"ruled_out"`
	Unknown  []Ruling  `json:"not_checked"`

	// Problem is why there is no report; the rest is then empty.
	Problem string `json:"problem,omitempty"`
	// Late is how long after its window slowray was done.
	Late    time.Duration `json:"late_ns,omitempty"`
	netns   uint64        // of the servers
	clients uint64        // network namespace of the load
	backend uint64        // network namespace of the backend; 0 if there is none
	routers []uint64      // those of the routers between them

	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Account   struct {
		Lost      float64 `json:"lost_s"`
		Explained float64 `json:"explained_s"`
	} `json:"account"`

	// Against is what in the report cannot be true.
	Against []string `json:"against,omitempty"`
	whole   diagnose.Report
	cpu     time.Duration // that slowray took
}

// Finding is one cause that slowray names.
type Finding struct {
	Cause   string  `json:"cause"`
	Title   string  `json:"title"`
	Role    string  `json:"role"`
	Subject Subject `json:"subject"`
	Impact  struct {
		Text string `json:"text"`
	} `json:"impact"`
	text string // all of it, to look for words
}

// Subject is what a finding is about.
type Subject struct {
	Kind  string `json:"kind"`
	NetNS uint64 `json:"netns,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Comm  string `json:"comm,omitempty"`
	Port  int    `json:"port,omitempty"`
}

// Ruling is a cause that is not named, and why.
type Ruling struct {
	Cause   string `json:"cause"`
	Because string `json:"because"`
}

// verdictTime is how long after its window slowray may still be working.
const verdictTime = 20 * time.Second

// slowray runs slowray on the host and reads its report. That it fails is a
// result, not an error.
func (r *runner) slowray(ctx context.Context, box *sandbox.Box) (*Report, error) {
	netns, clients, backend, err := namespaces(ctx, box)
	if err != nil {
		return nil, err
	}
	args := append(r.opt.Slowray[1:len(r.opt.Slowray):len(r.opt.Slowray)], "why", "--json", "--for", r.opt.Window.String())
	if r.counted {
		args = append(args, "--budget", "0")
	}
	if !r.opt.WholeHost {
		args = append(args, "--port", strconv.Itoa(r.plan.FrontPort))
	}
	if r.Setup().Pod.Cluster {
		args = append(args, "--kubeconfig", filepath.Join(box.Dir, server.KubeconfigFile), "--node-name", server.NodeName)
	}
	if r.opt.Save != "" {
		r.looks++
		args = append(args, "--save", filepath.Join(r.opt.Save, fmt.Sprintf("%s-%d-%d.json.zst", r.Name, r.opt.Seed, r.looks)))
	}
	limit, cancel := context.WithTimeout(ctx, r.opt.Window+verdictTime)
	defer cancel()
	cmd := exec.CommandContext(limit, r.opt.Slowray[0], args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Pdeathsig goes by thread: the one that starts it must outlive it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	report := &Report{}
	var exit *exec.ExitError
	switch {
	case limit.Err() != nil:
		report.Problem = fmt.Sprintf("slowray was not done %v after its window", verdictTime)
	case errors.As(err, &exit) && exit.ExitCode() == 1: // findings
	case err != nil:
		report.Problem = fmt.Sprintf("slowray: %v: %.300s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if report.Problem == "" {
		if err := report.parse(stdout.Bytes()); err != nil {
			report.Problem = err.Error()
		}
	}
	if w := report.whole.Window; !w.Start.IsZero() {
		report.Late = max(0, time.Since(w.Start)-time.Duration(w.Seconds*float64(time.Second)))
	}
	if cmd.ProcessState != nil {
		report.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	report.netns, report.clients, report.backend = netns, clients, backend
	for _, j := range []*sandbox.Join{box.Front, box.Back} {
		if j != nil {
			for _, router := range j.Routers {
				report.routers = append(report.routers, router.Inode)
			}
		}
	}
	return report, nil
}

// namespaces are the network namespaces of a sandbox: of the servers, of the
// load, and of the backend, which is 0 if there is none.
func namespaces(ctx context.Context, box *sandbox.Box) (netns, clients, backend uint64, err error) {
	if netns, err = box.Server.NetNS(ctx); err != nil {
		return 0, 0, 0, err
	}
	if clients, err = box.Client.NetNS(ctx); err != nil || box.Backend == nil {
		return netns, clients, 0, err
	}
	backend, err = box.Backend.NetNS(ctx)
	return netns, clients, backend, err
}

func (r *Report) parse(data []byte) error {
	if err := json.Unmarshal(data, r); err != nil {
		return fmt.Errorf("slowray's report: %w: %.200s", err, data)
	}
	if r.Schema != "slowray.report/1" {
		return fmt.Errorf("slowray's report: schema %q: not known", r.Schema)
	}
	var raw struct {
		Findings []json.RawMessage `json:"findings"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	for n := range r.Findings {
		r.Findings[n].text = string(raw.Findings[n])
	}
	if err := json.Unmarshal(data, &r.whole); err != nil {
		return fmt.Errorf("slowray's report: %w", err)
	}
	r.Against = consistency.Check(&r.whole)
	return nil
}
