package onnodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/commandline"
)

const (
	// atATime is on how many nodes slowray runs at the same time, and mostStreams on how many
	// where it goes on until it is ended: nodes that wait for their turn would never have one.
	atATime     = 32
	mostStreams = 1024
	// mostOutput is what is taken of one report; the largest known has a tenth of it.
	mostOutput = 32 << 20
)

// Runner runs a command line of slowray at a spot and gives its exit status.
type Runner func(ctx context.Context, s Spot, args []string, stdout, stderr io.Writer) (int, error)

// OnAgents runs it in the pods of the DaemonSet, of which there has to be one for some
// of the spots.
func (c *Cluster) OnAgents(ctx context.Context, spots []Spot) (Runner, error) {
	agents, err := c.Agents(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(spots, func(s Spot) bool { return agents[s.Node] != nil }) {
		return nil, c.missing(spots[0].Node)
	}
	return func(ctx context.Context, s Spot, args []string, stdout, stderr io.Writer) (int, error) {
		agent := agents[s.Node]
		if agent == nil {
			return 0, c.missing(s.Node)
		}
		return c.exec(ctx, agent, args, nil, stdout, stderr)
	}, nil
}

// Result is what slowray said at a spot.
type Result struct {
	Spot
	Status      int    // exit status, [commandline.ExitFailed] where it could not be run
	JSON        []byte // the report; empty where there is none
	Out, Stderr []byte // the same as text
	Err         error  // why it could not be run

	old bool // it does not know jsonAndText
}

// Look runs slowray why at all spots and gives what it said, in their order. With asJSON
// the reports as text are not needed.
func Look(ctx context.Context, run Runner, spots []Spot, args []string, asJSON bool) []Result {
	results := make([]Result, len(spots))
	each(spots, atATime, func(i int, s Spot) {
		r := &results[i]
		r.Spot = s
		filter, err := s.containers()
		if err == nil {
			err = r.ask(ctx, run, slices.Concat(args, []string{jsonAndText}, filter), parts)
		}
		if err == nil && r.old {
			before, take := args, func(out []byte) (report, text []byte) { return nil, out }
			if asJSON {
				before, take = slices.Concat(args, []string{"--json"}), parts
			}
			err = r.ask(ctx, run, slices.Concat(before, filter), take)
		}
		needed := r.Out
		if asJSON {
			needed = r.JSON
		}
		if err == nil && r.Status <= commandline.ExitFindings && len(bytes.TrimSpace(needed)) == 0 {
			// A stream that breaks off, as of a node that dies, ends as a good one does.
			err = errors.New("it ended before its report was complete")
		}
		if r.Err = err; err != nil {
			r.Status = commandline.ExitFailed
		}
	})
	return results
}

// jsonAndText makes slowray why print both reports. An agent that is older than the plugin
// may not know it, and says so.
const jsonAndText = "--json-and-text"

var unknown = []byte("unknown flag " + jsonAndText)

// ask runs slowray once; parts takes apart what it printed.
func (r *Result) ask(ctx context.Context, run Runner, args []string, parts func(out []byte) (report, text []byte)) (err error) {
	out, stderr := budget.Prefix{Most: mostOutput}, budget.Prefix{Most: mostOutput}
	r.Status, err = run(ctx, r.Spot, args, &out, &stderr)
	r.JSON, r.Out = parts(out.Text)
	r.Stderr = stderr.Text
	r.old = r.Status == commandline.ExitFailed && (bytes.Contains(stderr.Text, unknown) || bytes.Contains(out.Text, unknown))
	if err == nil && (out.Over || stderr.Over) {
		err = errors.New("its output is too long")
	}
	return err
}

// parts takes apart a report as JSON and the same as text; what does not begin with one, or
// breaks off in it, has neither.
func parts(out []byte) (report, text []byte) {
	d := json.NewDecoder(bytes.NewReader(out))
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		return nil, nil
	}
	return value, bytes.TrimLeft(out[d.InputOffset():], "\n")
}

// Stream runs slowray at all spots and passes on its lines as they come, each with the
// node before it where there are several and they are text. It gives the worst status.
func Stream(ctx context.Context, run Runner, spots []Spot, args []string, text bool, stdout, stderr io.Writer) int {
	var mu sync.Mutex
	worst := commandline.ExitNothing
	note := func(s Spot, status int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			status = commandline.ExitFailed
			if ctx.Err() == nil {
				fmt.Fprintf(stderr, "slowray: %s: %v\n", s.Node, err)
			}
		}
		worst = max(worst, status)
	}
	several := len(spots) > 1
	if more := len(spots) - mostStreams; more > 0 {
		note(spots[mostStreams], 0, fmt.Errorf("this node and %d others are left out: name fewer pods", more-1))
		spots = spots[:mostStreams]
	}
	each(spots, mostStreams, func(_ int, s Spot) {
		name := ""
		if text && several {
			name = s.Node + "  "
		}
		filter, err := s.Workload()
		if err != nil {
			note(s, 0, err)
			return
		}
		out, errs := &lines{mu: &mu, to: stdout, before: name, text: text}, &lines{mu: &mu, to: stderr, before: name, text: true}
		status, err := run(ctx, s, slices.Concat(args, filter), out, errs)
		out.end()
		errs.end()
		note(s, status, err)
	})
	return worst
}

// each calls look for all spots, so many at a time.
func each(spots []Spot, most int, look func(int, Spot)) {
	var all sync.WaitGroup
	turns := make(chan struct{}, most)
	for i, s := range spots {
		turns <- struct{}{}
		all.Go(func() {
			look(i, s)
			<-turns
		})
	}
	all.Wait()
}

// label is the node, and its pods if they are asked about.
func (s Spot) label() string {
	if len(s.Pods) == 0 {
		return s.Node
	}
	return s.Node + "  " + s.podNames()
}

// lines passes on whole lines, each with something before it.
type lines struct {
	mu     *sync.Mutex
	to     io.Writer
	before string
	text   bool
	rest   []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < 64<<10 {
			return len(p), nil
		} else if i < 0 {
			i = len(l.rest) - 1
		}
		line := l.rest[:i+1]
		l.mu.Lock()
		_, err := io.WriteString(l.to, l.before)
		switch {
		case err != nil:
		case !l.text && json.Valid(line): // which escapes what must not be shown
			_, err = l.to.Write(line)
		default:
			err = shown(l.to, line)
		}
		l.mu.Unlock()
		l.rest = l.rest[i+1:]
		if err != nil {
			return 0, err
		}
	}
}

// end passes on a line that did not end.
func (l *lines) end() {
	if len(l.rest) > 0 {
		_, _ = l.Write([]byte("\n"))
	}
}

// OnNode runs a command line of slowray in the DaemonSet's pod of a node, on a terminal
// if there is one.
func (c *Cluster) OnNode(ctx context.Context, node string, args []string, terminal *Terminal, stdout, stderr io.Writer) (int, error) {
	agents, err := c.Agents(ctx)
	if err != nil {
		return 0, err
	}
	agent := agents[node]
	if agent == nil {
		return 0, c.missing(node)
	}
	return c.exec(ctx, agent, args, terminal, stdout, stderr)
}
