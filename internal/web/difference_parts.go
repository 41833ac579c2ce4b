package web

import (
	"fmt"
	"math"

	num "github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

// parts compares the ledgers. The server's time stands in its parts where these
// are known on both sides.
func (c *comparedJSON) parts() []*differenceRow {
	added := c.in.total() - c.out.total()
	scale := max(c.in.total(), c.out.total())
	fine := c.in.split() && c.out.split()
	var rows []*differenceRow
	for _, name := range ledgerNames(fine) {
		in, out := c.in.mean(name), c.out.mean(name)
		d := in - out
		if math.Abs(d) < leastChange*scale {
			continue
		}
		r := c.row(byPart, name, unitUS, in/1e3, out/1e3)
		text := fmt.Sprintf("%s: %s a request, %s outside%s", observe.PartName(name), span(in), span(out), times(in, out))
		if math.Abs(added) >= leastChange*scale {
			r.Explains = figure(d / added)
			switch {
			case added > 0 && d > 0:
				text += "; " + portion(d/added) + " of the added time"
			case added < 0 && d < 0:
				text += "; " + portion(d/added) + " of the saved time"
			}
		}
		r.Text = text + c.caveat() + "."
		// What made it slower comes before what made it faster meanwhile.
		r.score = c.weight * math.Abs(d) / max(math.Abs(added), scale/2)
		if (d > 0) != (added > 0) {
			r.score /= 2
		}
		if r.Few {
			r.score /= 3
		}
		rows = append(rows, r)
	}
	return rows
}

// ledgerNames are the parts that add up to a request's time.
func ledgerNames(fine bool) []string {
	var names []string
	for p := range observe.AckDelay {
		if p != observe.Server || !fine {
			names = append(names, p.String())
			continue
		}
		for q := range observe.NumServerParts {
			names = append(names, q.String())
		}
	}
	return names
}

// portion is a part of the added time in words. It may be more than all where
// something else became faster.
func portion(x float64) string {
	if x >= 0.995 {
		return "all"
	}
	return num.Percent(x)
}

// row begins a row of the endpoint.
func (c *comparedJSON) row(dimension, name, unit string, in, out float64) *differenceRow {
	return &differenceRow{Dimension: dimension, Name: name, Key: &c.Key, Unit: unit, Inside: figure(in), Outside: figure(out), Ratio: quotient(in, out),
		Explains: figure(nothing), Few: min(c.in.requests, c.out.requests) < fewRequests, Of: sizeJSON{c.in.requests, c.out.requests}}
}

// caveat says that there is little to go by.
func (c *comparedJSON) caveat() string { return caveat(c.in.requests, c.out.requests) }

func caveat(in, out uint64) string {
	switch {
	case in < fewRequests && in <= out:
		return fmt.Sprintf(" (of only %s here)", num.Counted(in, "request"))
	case out < fewRequests:
		return fmt.Sprintf(" (of only %s outside)", num.Counted(out, "request"))
	}
	return ""
}

func quotient(in, out float64) figure {
	if out <= 0 {
		return figure(nothing)
	}
	return figure(in / out)
}

// times says how often one is the other, where that is worth saying.
func times(in, out float64) string {
	if out > 0 && in/out >= 2 {
		return fmt.Sprintf(" (%s times)", rateText(math.Round(in/out*10)/10))
	}
	return ""
}

// rates compares what is counted: how many requests, errors, segments retransmitted,
// and how long the way is.
func (c *comparedJSON) rates() []*differenceRow {
	var rows []*differenceRow
	in, out := c.Inside, c.Outside
	if x := float64(in.RPS) / max(float64(out.RPS), 1e-9); (x >= noticedRatio || x <= 1/noticedRatio) && min(c.in.requests, c.out.requests) >= fewRequests {
		r := c.row(byRate, "requests a second", unitCount, float64(in.RPS), float64(out.RPS))
		r.Text = fmt.Sprintf("%s requests a second, %s outside%s.", rateText(float64(in.RPS)), rateText(float64(out.RPS)), c.caveat())
		r.score = 0.25 * min(math.Abs(math.Log2(x))/3, 1)
		rows = append(rows, r)
	}
	if d := float64(in.Errors - out.Errors); math.Abs(d) > 2*shareError(float64(in.Errors), float64(out.Errors), float64(c.in.requests), float64(c.out.requests)) && math.Abs(d) >= 0.001 {
		r := c.row(byStatus, "failed", unitShare, float64(in.Errors), float64(out.Errors))
		r.Text = fmt.Sprintf("%s of the requests failed, %s outside%s.", num.Percent(float64(in.Errors)), num.Percent(float64(out.Errors)), c.caveat())
		r.score = min(1, 0.2+math.Abs(d))
		if d < 0 {
			r.score /= 3
		}
		rows = append(rows, r)
	}
	lossIn, lossOut := float64(ratio(c.in.retrans, c.in.segments)), float64(ratio(c.out.retrans, c.out.segments))
	if d := lossIn - lossOut; math.Abs(d) > 3*shareError(lossIn, lossOut, float64(c.in.segments), float64(c.out.segments)) && math.Abs(d) >= 0.001 {
		r := c.row(byNetwork, "segments retransmitted", unitShare, lossIn, lossOut)
		r.Text = fmt.Sprintf("%s of the segments were retransmitted, %s outside%s.", num.Percent(lossIn), num.Percent(lossOut), c.caveat())
		r.score = c.weight * min(0.8, 20*math.Abs(d))
		rows = append(rows, r)
	}
	if c.in.rtt.Count() >= fewRequests && c.out.rtt.Count() >= fewRequests {
		a, b := float64(c.in.rtt.Quantile(0.5)), float64(c.out.rtt.Quantile(0.5))
		if d := a - b; math.Abs(d) >= leastChange*max(c.in.total(), c.out.total()) && (a >= noticedRatio*b || b >= noticedRatio*a) {
			r := c.row(byNetwork, "round trip", unitUS, a/1e3, b/1e3)
			r.Text = fmt.Sprintf("A round trip takes %s, %s outside%s.", span(a), span(b), times(a, b))
			r.score = c.weight * 0.8 * min(1, math.Abs(d)/max(c.in.total(), c.out.total()))
			rows = append(rows, r)
		}
	}
	return rows
}

// shareError is the standard error of the difference of two shares.
func shareError(p, q, n, m float64) float64 {
	if n <= 0 || m <= 0 {
		return math.Inf(1)
	}
	all := (p*n + q*m) / (n + m)
	return math.Sqrt(max(all*(1-all), 1e-12) * (1/n + 1/m))
}
