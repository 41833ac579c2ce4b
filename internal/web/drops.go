package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
)

// nanoseconds is a time of an Observation.
func nanoseconds(ns int64) time.Duration { return time.Duration(ns) }

// maxDropRows is how many places of one layer are reported.
const maxDropRows = 100

type dropLayer struct {
	Layer   string     `json:"layer"`
	Title   string     `json:"title"`
	Packets uint64     `json:"packets"`
	Share   figure     `json:"share"`
	Rows    []*dropRow `json:"rows"`
}

type dropRow struct {
	What    string                 `json:"what"`  // a rule, a reason, a counter
	Where   string                 `json:"where"` // in words
	Source  string                 `json:"source"`
	Way     string                 `json:"way"`
	NetNS   uint64                 `json:"netns,omitempty"`
	Packets uint64                 `json:"packets"`
	Share   figure                 `json:"share"`
	Flows   []diagnose.DroppedFlow `json:"flows,omitempty"`
}

// whatDropped names what threw the packets of a place away.
func whatDropped(d *diagnose.DroppedFor) string {
	if d.Rule != nil && d.Rule.Text != "" {
		return d.Rule.Text
	}
	if d.Rule != nil {
		return d.Rule.Table + " " + d.Rule.Chain + " " + d.Rule.Verdict
	}
	return cmp.Or(d.Reason, d.Counter, d.Location, d.Interface)
}

// drops is where packets died in the range, layer by layer.
func (s *server) drops(ctx context.Context, q *query) (answer, error) {
	lost := losses{}
	facts, err := s.within(ctx, q.timeRange, maxWindows, judged, &lost)
	if err != nil {
		return answer{}, err
	}
	type place struct{ layer, what, where, source, way string }
	rows := map[place]*dropRow{}
	titles, sums, watched := map[string]string{}, map[string]uint64{}, 0
	var all uint64
	notChecked := map[string]diagnose.Excluded{}
	for _, f := range facts {
		if !f.hasDrop {
			continue
		}
		watched++
		for _, l := range f.drops.Layers {
			titles[l.Layer] = l.Title
			for i := range l.Sites {
				d := &l.Sites[i]
				at := place{l.Layer, whatDropped(d), d.Place, d.Source, d.Way}
				r := rows[at]
				if r == nil {
					r = &dropRow{What: at.what, Where: at.where, Source: at.source, Way: at.way, NetNS: d.NetNS, Flows: d.Flows}
					rows[at] = r
				}
				r.Packets += d.Packets
				sums[l.Layer] += d.Packets
				all += d.Packets
			}
		}
		for _, x := range f.drops.NotChecked {
			notChecked[x.Cause+x.Because] = x
		}
	}
	layers, clean := []*dropLayer{}, []string{}
	for _, layer := range cause.DropLayers() {
		name := string(layer)
		if sums[name] == 0 {
			clean = append(clean, name)
			continue
		}
		l := &dropLayer{Layer: name, Title: titles[name], Packets: sums[name], Share: ratio(sums[name], all)}
		for at, r := range rows {
			if at.layer == name {
				r.Share = ratio(r.Packets, all)
				l.Rows = append(l.Rows, r)
			}
		}
		slices.SortFunc(l.Rows, func(a, b *dropRow) int {
			return cmp.Or(cmp.Compare(b.Packets, a.Packets), strings.Compare(a.Where, b.Where), strings.Compare(a.What, b.What))
		})
		if n := len(l.Rows) - maxDropRows; n > 0 {
			lost.add("places with fewer drops are left out", int64(n))
			l.Rows = l.Rows[:maxDropRows]
		}
		layers = append(layers, l)
	}
	because := ""
	switch {
	case len(facts) == 0:
		because = "no window was saved in this range"
	case watched == 0:
		because = "drops were not watched"
	}
	excluded := slices.SortedFunc(maps.Values(notChecked), func(a, b diagnose.Excluded) int {
		return cmp.Or(strings.Compare(a.Cause, b.Cause), strings.Compare(a.Because, b.Because))
	})
	return jsonAnswer(map[string]any{"layers": layers, "packets": all, "clean": clean, "not_checked": append([]diagnose.Excluded{}, excluded...),
		"because": orNull(because), "windows": watched, "losses": lost})
}

func ratio(a, b uint64) figure {
	if b == 0 {
		return 0
	}
	return figure(float64(a) / float64(b))
}
