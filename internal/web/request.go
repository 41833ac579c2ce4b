package web

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/store"
)

// maxChains is how many chains are reported for one request.
const maxChains = 12

// request tells of one request: what it was, and what the windows of its moment
// know of its process.
func (s *server) request(ctx context.Context, q *query) (answer, error) {
	if q.id == "" {
		return answer{}, bad("id is missing: take it from /api/requests")
	}
	w, err := parseID(q.id)
	if err != nil {
		return answer{}, err
	}
	r, err := s.find(w)
	if err != nil {
		return answer{}, err
	}
	if r == nil {
		return answer{}, &notFound{"this request is not stored (any more)"}
	}
	from := time.Unix(0, r.StartNS)
	moment := timeRange{from, from.Add(max(time.Duration(r.TotalNS()), 1))}
	out := struct {
		Request  json.RawMessage   `json:"request"`
		Hops     []hopJSON         `json:"hops,omitempty"` // its path, where anything of it is known
		Wait     *chainsJSON       `json:"wait"`
		Stacks   any               `json:"stacks,omitempty"` // a *frameJSON, unless they are not asked for
		Because  map[string]string `json:"because"`
		Findings []*findingJSON    `json:"findings"`
		Window   *spanJSON         `json:"window"`
		Unit     string            `json:"unit,omitempty"`
		Losses   losses            `json:"losses"`
	}{Request: requestJSON(r), Because: map[string]string{}, Losses: losses{}}
	q.side = r.Side // it stays the one that was asked for
	lines, err := s.joined(ctx, q, []store.Request{*r}, &out.Losses)
	if err != nil {
		return answer{}, err
	}
	out.Hops = lines[0].hops
	if r.Trace.Known() {
		// A trace does not have the calls of databases, and may have far more of others.
		steps, err := s.traceOf(ctx, r)
		if err != nil {
			return answer{}, err
		}
		if len(steps) > len(out.Hops) {
			out.Hops = steps
		}
	}
	if out.Findings, err = s.found(moment, timeRange{moment.from.Add(-time.Minute), moment.to.Add(time.Minute)}); err != nil {
		return answer{}, err
	}
	f, err := s.best(ctx, moment, unjudged)
	var tree *frameJSON
	switch {
	case err != nil:
		out.Because["wait"] = "the window that it was in cannot be read: " + err.Error()
		out.Because["stacks"] = out.Because["wait"]
	case f == nil:
		out.Because["wait"] = "no window was saved when it ran"
		out.Because["stacks"] = out.Because["wait"]
	default:
		out.Window = &spanJSON{unix(f.Start), unix(f.End)}
		out.Wait, out.Because["wait"] = f.chainsOf(r, moment)
		if q.noStacks {
			break
		}
		if tree, out.Unit, out.Because["stacks"], err = s.stacksOf(f, r, moment); err != nil {
			return answer{}, err
		}
	}
	if q.noStacks {
		delete(out.Because, "stacks")
	} else {
		out.Stacks = tree
	}
	for key, why := range out.Because {
		if why == "" {
			delete(out.Because, key)
		}
	}
	return jsonAnswer(&out)
}

// chainsJSON is chains of waits, as in schema/wait.schema.json, with how long
// threads waited so in the window.
type chainsJSON struct {
	Chains []chainJSON `json:"chains"`
}

type chainJSON struct {
	report.WaitChain
	Seconds     figure  `json:"seconds"`      // of all threads that waited so, in the window
	SlowSeconds figure  `json:"slow_seconds"` // that slow requests lost so
	First       float64 `json:"first"`
	Last        float64 `json:"last"`
}

// chainsOf is the waits of the process that had the request in hand, or whose
// chains lead through it, at that time; nil and why when there are none.
func (f *windowFacts) chainsOf(r *store.Request, moment timeRange) (*chainsJSON, string) {
	if f.waits == nil {
		return nil, "the waits of threads were not watched"
	}
	var mine []*observe.WaitShare
	for i := range f.waits.Shares {
		w := &f.waits.Shares[i]
		at := timeRange{f.Start.Add(time.Duration(w.FirstNS)), f.Start.Add(time.Duration(w.LastNS) + time.Duration(f.waits.EveryNS))}
		if at.overlap(moment) > 0 && f.concerns(w, r) {
			mine = append(mine, w)
		}
	}
	if len(mine) == 0 {
		return nil, fmt.Sprintf("no thread of its process was seen waiting in its time (looked every %s)", time.Duration(f.waits.EveryNS).Round(time.Millisecond))
	}
	slices.SortStableFunc(mine, func(a, b *observe.WaitShare) int {
		return int(min(max(b.SlowNS-a.SlowNS, -1), 1))
	})
	out := &chainsJSON{Chains: []chainJSON{}}
	for _, w := range mine[:min(len(mine), maxChains)] {
		out.Chains = append(out.Chains, chainJSON{report.NewWaitChain(&w.Chain), figure(float64(w.ThreadNS) / 1e9), figure(float64(w.SlowNS) / 1e9),
			unix(f.Start.Add(time.Duration(w.FirstNS))), unix(f.Start.Add(time.Duration(w.LastNS)))})
	}
	return out, ""
}

// concerns says whether the request's process waits in a chain: by its number,
// or, where workers share a name, by that.
func (f *windowFacts) concerns(w *observe.WaitShare, r *store.Request) bool {
	if r.PID == 0 {
		return false
	}
	if w.PID == r.PID {
		return true
	}
	for i := range w.Chain.Hops {
		p := &w.Chain.Hops[i].Process
		if p.PID == r.PID || i == 0 && p.Comm != "" && p.Comm == r.Process.Comm {
			return true
		}
	}
	return false
}
