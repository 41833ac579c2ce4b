package web

import (
	"context"
	"math"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Widths of the rows: so many for each power of two.
const (
	histogramRows = 8
	heatRows      = 4
	heatPoints    = 200 // columns, at most
)

type bucketJSON struct {
	From  float64 `json:"from_us"`
	To    float64 `json:"to_us"`
	Count uint64  `json:"count"`
}

// row is where a value lies on an axis of so many rows for each power of two,
// from 1 µs up; what is less counts as 1 µs.
func row(ns int64, each int) int {
	if ns < 1000 {
		return 0
	}
	return int(math.Floor(math.Log2(float64(ns)/1000)*float64(each) + 1e-9))
}

// lower is the lower bound of a row, µs, and 0 of the first.
func lower(row, each int) float64 {
	if row <= 0 {
		return 0
	}
	us := math.Exp2(float64(row) / float64(each))
	scale := math.Pow(10, math.Floor(math.Log10(us))-2)
	return math.Round(us/scale) * scale
}

// spreadInto adds a histogram's counts to rows.
func spreadInto(rows map[int]uint64, h *observe.Histogram, each int) {
	for ns, n := range h.Buckets() {
		rows[row(ns, each)] += n
	}
}

// edges are the lowest and the highest row in use; false when none is.
func edges(rows map[int]uint64) (low, high int, ok bool) {
	for r := range rows {
		if !ok || r < low {
			low = r
		}
		if !ok || r > high {
			high = r
		}
		ok = true
	}
	return low, high, ok
}

type heatJSON struct {
	T      figures    `json:"t"`
	US     figures    `json:"us"` // lower bounds of the rows, ascending
	Counts [][]uint64 `json:"counts"`
	Step   int64      `json:"step"`
}

// histogram is how the requests' times are spread, altogether and over time.
func (s *server) histogram(ctx context.Context, q *query) (answer, error) {
	span, err := s.span()
	if err != nil {
		return answer{}, err
	}
	g := newGrid(q.timeRange, span, min(q.points, heatPoints))
	columns := make([]map[int]uint64, g.n)
	whole := map[int]uint64{}
	all := map[int]uint64{}
	var total observe.Histogram
	for _, ask := range q.queries(timeRange{time.Unix(g.from, 0), q.to}) {
		err := s.source.Points(ask, g.duration(), func(sec *store.Second) bool {
			i, ok := g.at(sec.At)
			if !ok {
				return ctx.Err() == nil
			}
			if columns[i] == nil {
				columns[i] = map[int]uint64{}
			}
			spreadInto(columns[i], &sec.Endpoint.Total, heatRows)
			spreadInto(all, &sec.Endpoint.Total, heatRows)
			spreadInto(whole, &sec.Endpoint.Total, histogramRows)
			total.Merge(&sec.Endpoint.Total)
			return ctx.Err() == nil
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return answer{}, err
		}
	}
	buckets := []bucketJSON{}
	if low, high, ok := edges(whole); ok {
		for r := low; r <= high; r++ {
			buckets = append(buckets, bucketJSON{lower(r, histogramRows), lower(r+1, histogramRows), whole[r]})
		}
	}
	heat := heatJSON{T: figures{}, US: figures{}, Counts: [][]uint64{}, Step: g.step}
	if low, high, ok := edges(all); ok {
		heat.T = g.times()
		for r := low; r <= high; r++ {
			heat.US = append(heat.US, lower(r, heatRows))
		}
		for i := range g.n {
			column := make([]uint64, high-low+1)
			for r, n := range columns[i] {
				column[r-low] = n
			}
			heat.Counts = append(heat.Counts, column)
		}
	}
	out := map[string]any{"buckets": buckets, "heat": heat, "count": total.Count(), "losses": losses{}}
	if total.Count() > 0 {
		out["p50_us"], out["p90_us"], out["p99_us"], out["max_us"] = microseconds(total.Quantile(0.5)), microseconds(total.Quantile(0.9)),
			microseconds(total.Quantile(0.99)), microseconds(total.Max())
	}
	return jsonAnswer(out)
}
