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
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/snapshot"
)

const (
	// proveLoad is how long the load of a proof lasts at most; it ends with it.
	proveLoad = 4 * time.Minute
	proveTime = 3 * time.Minute // for slowray to come to a verdict
	proveWarm = 4 * time.Second // load before it begins

	proveLook  = 4 * time.Second // that it looks before
	proveBlock = 2 * time.Second // of each of its measurements
	briefBlock = time.Second     // the same, when it is to be brief
)

// ProofResult is one proof that was asked for.
type ProofResult struct {
	Proof
	Seed    int64  `json:"seed"`
	Found   bool   `json:"found"`   // the cause, in the look before
	Verdict string `json:"verdict"` // of slowray; empty where it gave none
	Why     string `json:"why"`
	OK      bool   `json:"ok"`
	// Problem is why there is no verdict.
	Problem string `json:"problem,omitempty"`
	// Left is what was not as before when slowray had ended, one line each.
	Left    []string `json:"left,omitempty"`
	Seconds float64  `json:"seconds"` // that slowray took
}

// proof is the part of slowray prove's JSON that the lab judges.
type proof struct {
	Schema string `json:"schema"`
	Found  bool   `json:"found"` // in the look before
	Result struct {
		Verdict string `json:"verdict"`
		Why     string `json:"why"`
	} `json:"result"`
}

// Prove injects an incident, lets slowray prove what is asked for there, judges
// the verdict, and looks whether everything is as before. The error is for what
// kept it from doing so.
func Prove(ctx context.Context, name string, opt Options) ([]ProofResult, error) {
	proofs, err := proofsOf(name)
	if err != nil {
		return nil, err
	}
	var results []ProofResult
	for _, p := range proofs {
		result, err := RunProof(ctx, p, opt)
		if err != nil {
			return results, fmt.Errorf("lab: %s: %w", name, err)
		}
		results = append(results, result)
	}
	return results, nil
}

// RunProof makes one proof.
func RunProof(ctx context.Context, p Proof, opt Options) (result ProofResult, err error) {
	r, err := open(ctx, p.Incident, opt)
	if err != nil {
		return result, err
	}
	defer r.lock.Release()
	result = ProofResult{Proof: p, Seed: r.opt.Seed}
	warm := max(proveWarm, r.Lead)
	in, err := r.inject(ctx, proveLoad)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, in.box.Close()) }()
	r.print.heading(r.Incident, r.opt.Seed)
	if err := pause(ctx, warm); err != nil {
		return result, err
	}
	there, err := look(ctx, in.box)
	if err != nil {
		return result, err
	}
	before, err := snapshot.Take(ctx, there.Scope)
	if err != nil {
		return result, err
	}
	r.print.progress(fmt.Sprintf("slowray proves %s", p.Cause))
	started := time.Now()
	said, err := r.proves(ctx, p.Cause, in.box.Dir, proveTime)
	if err != nil {
		return result, err
	}
	result.Seconds = time.Since(started).Seconds()
	result.Found, result.Verdict, result.Why, result.Problem = said.Found, said.Result.Verdict, said.Result.Why, said.problem
	if result.Left, err = there.left(ctx, before); err != nil {
		return result, err
	}
	result.OK = result.Verdict == p.Want() && len(result.Left) == 0
	r.print.proof(result, said.text)
	return result, nil
}

// said is what slowray prove said.
type said struct {
	proof
	problem string
	text    string
}

// proves runs slowray prove on the host, as an administrator would. That it
// fails is a result, not an error.
func (r *runner) proves(ctx context.Context, cause, dir string, most time.Duration) (said, error) {
	block := proveBlock
	if r.opt.Brief {
		block = briefBlock
	}
	args := append(r.opt.Slowray[1:len(r.opt.Slowray):len(r.opt.Slowray)], "prove", cause, "--apply", "--json", "--for", proveLook.String(),
		"--block", block.String(), "--port", strconv.Itoa(r.plan.FrontPort), "--state", filepath.Join(dir, "journal"))
	limit, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		out, err := prove(limit, r.opt.Slowray[0], args)
		switch {
		case ctx.Err() != nil:
			return out, ctx.Err()
		case limit.Err() != nil:
			out.problem = fmt.Sprintf("slowray came to no verdict in %v", most)
			return out, nil
		case err != nil || !strings.Contains(out.problem, oneAtATime):
			return out, err
		}
		// Another slowray changes something on this host: a test of another
		// package, most likely.
		if err := pause(limit, 2*time.Second); err != nil && ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
}

// oneAtATime is what slowray says when another one is changing something.
const oneAtATime = "one set of changes at a time"

// prove runs slowray once.
func prove(ctx context.Context, slowray string, args []string) (said, error) {
	cmd := exec.CommandContext(ctx, slowray, args...)
	// Asked to stop, it puts back what it changed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	// Pdeathsig goes by thread: the one that starts it must outlive it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	out := said{text: stdout.String()}
	var exit *exec.ExitError
	switch {
	case err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1):
		out.problem = fmt.Sprintf("slowray prove: %v: %.500s", err, bytes.TrimSpace(stderr.Bytes()))
	default:
		if err := json.Unmarshal(stdout.Bytes(), &out.proof); err != nil {
			out.problem = fmt.Sprintf("slowray's verdict: %v: %.200s", err, stdout.Bytes())
		}
	}
	return out, nil
}

func (p *printer) proof(r ProofResult, text string) {
	p.clear()
	verdict := r.Verdict
	if verdict == "" {
		verdict = "no verdict"
	}
	p.printf("  %-8s %-30s %s, %.0f s\n", "asked", r.Cause, "right is: "+r.Want(), r.Seconds)
	p.printf("  %-8s %-30s %s%s\n", "said", verdict, r.Why, r.Problem)
	for _, l := range r.Left {
		p.printf("  %s %s\n", p.paint(false, "NOT AS BEFORE"), l)
	}
	if p.verbose {
		p.printf("%s\n", text)
	}
	if r.OK {
		p.printf("  %s\n", p.paint(true, "ok"))
		return
	}
	p.printf("  %s (again with the same addresses and ports: --seed %d)\n", p.paint(false, "MISMATCH"), r.Seed)
}
