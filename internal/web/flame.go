package web

import (
	"bytes"
	"context"
	"slices"

	"github.com/slowray/slowray/internal/flame"
	"github.com/slowray/slowray/internal/observe"
)

// join is stacks of several windows as one.
func join(list []*observe.Stacks, only func(*observe.StackSample) bool) *observe.Stacks {
	out := &observe.Stacks{}
	column := map[observe.StackValue]int{}
	for _, x := range list {
		for _, t := range x.Types {
			if _, ok := column[t]; !ok {
				column[t] = len(out.Types)
				out.Types = append(out.Types, t)
			}
		}
	}
	for _, x := range list {
		if out.StartNS == 0 || x.StartNS < out.StartNS {
			out.StartNS = x.StartNS
		}
		out.WindowNS += x.WindowNS
		out.Hz = max(out.Hz, x.Hz)
		base := int32(len(out.Frames))
		out.Frames = append(out.Frames, x.Frames...)
		for i := range x.Samples {
			y := x.Samples[i]
			if only != nil && !only(&y) {
				continue
			}
			values := make([]int64, len(out.Types))
			for j, v := range y.Values {
				if j < len(x.Types) {
					values[column[x.Types[j]]] = v
				}
			}
			frames := make([]int32, len(y.Frames))
			for j, f := range y.Frames {
				if frames[j] = base + f; f < 0 || int(f) >= len(x.Frames) {
					frames[j] = -1
				}
			}
			y.Values, y.Frames = values, frames
			out.Samples = append(out.Samples, y)
		}
		out.Losses = append(out.Losses, x.Losses...)
		for _, n := range x.Notes {
			if !slices.Contains(out.Notes, n) {
				out.Notes = append(out.Notes, n)
			}
		}
	}
	return out
}

// forFlame is what a flame graph is drawn of.
func (s *server) forFlame(ctx context.Context, q *query) (after, before *observe.Stacks, opt flame.Options, err error) {
	var lost losses
	list, because, err := s.stacksIn(ctx, q.timeRange, q.off, &lost)
	if err != nil {
		return nil, nil, opt, err
	}
	if len(list) == 0 {
		return nil, nil, opt, &notFound{because}
	}
	after = join(list, q.ofEndpoints())
	after.Losses = lost
	if !q.against.zero() {
		var lostBefore losses
		list, _, err := s.stacksIn(ctx, q.against, q.off, &lostBefore)
		if err != nil {
			return nil, nil, opt, err
		}
		before = join(list, q.ofEndpoints())
		before.Losses = lostBefore
	}
	opt.Roots = flame.Roots(q.roots)
	if i := valueOf(after, q.valueNames()...); i >= 0 {
		opt.Value = after.Types[i].Type
	}
	return after, before, opt, nil
}

// flamePage is a page with a flame graph, which works by itself when it is saved.
func (s *server) flamePage(ctx context.Context, q *query) (answer, error) {
	after, before, opt, err := s.forFlame(ctx, q)
	if err != nil {
		return answer{}, err
	}
	var b bytes.Buffer
	if before != nil {
		err = flame.DiffHTML(&b, flame.Diff(before, after), opt)
	} else {
		err = flame.HTML(&b, after, opt)
	}
	return answer{body: b.Bytes(), kind: "text/html; charset=utf-8", policy: flame.Policy() + "; frame-ancestors 'self'", embedded: true}, err
}

// flamePicture is the same as a picture.
func (s *server) flamePicture(ctx context.Context, q *query) (answer, error) {
	after, before, opt, err := s.forFlame(ctx, q)
	if err != nil {
		return answer{}, err
	}
	var b bytes.Buffer
	if before != nil {
		err = flame.DiffSVG(&b, flame.Diff(before, after), opt)
	} else {
		err = flame.SVG(&b, after, opt)
	}
	return answer{body: b.Bytes(), kind: "image/svg+xml", policy: "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'", embedded: true}, err
}
