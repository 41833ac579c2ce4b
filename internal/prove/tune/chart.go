package tune

import (
	"fmt"
	"math"
	"strings"
)

// A chart is drawn for a width that a phone has, in units of a pixel there.
const (
	chartWidth  = 340
	chartHeight = 170
	marginLeft  = 46
	marginRight = 6
	marginTop   = 16
	marginFoot  = 20
	phaseGap    = 14 // between the blocks of two phases
)

// chart is one drawing, as the page has it.
type chart struct {
	Title, Label  string
	Width, Height int
	Lines         []line
	Bars          []bar
	Paths         []path
	Dots          []dot
	Words         []word
}

type line struct {
	Class          string
	X1, Y1, X2, Y2 float64
}
type bar struct {
	Class, Tip string
	X, Y, W, H float64
}
type path struct{ Class, Points string }
type dot struct {
	Class, Tip string
	X, Y       float64
}
type word struct {
	Class, Text, Anchor string
	X, Y                float64
}

// charts are the blocks of a step: good responses, latencies, errors.
func (s *Step) charts() []chart {
	if len(s.Blocks) == 0 {
		return nil
	}
	list := []chart{s.barChart("Good responses per second", "", func(b *Block) *float64 { return &b.Good })}
	if c, ok := s.latencyChart(); ok {
		list = append(list, c)
	}
	if s.Before.Errors != nil || s.With.Errors != nil || s.After.Errors != nil {
		list = append(list, s.barChart("Errors per second", "errors", func(b *Block) *float64 { return b.Errors }))
	}
	return list
}

// frame begins a chart: the places of the blocks on the x axis, the phases and
// the moments of the change.
func (s *Step) frame(title string) (c chart, x []float64, width float64) {
	c = chart{Title: title, Width: chartWidth, Height: chartHeight}
	gaps := 0
	for i := 1; i < len(s.Blocks); i++ {
		if s.Blocks[i].Phase != s.Blocks[i-1].Phase {
			gaps++
		}
	}
	width = (chartWidth - marginLeft - marginRight - float64(gaps)*phaseGap) / float64(len(s.Blocks))
	at := float64(marginLeft)
	first := at
	for i := range s.Blocks {
		if i > 0 && s.Blocks[i].Phase != s.Blocks[i-1].Phase {
			c.phase(s.Blocks[i-1].Phase, first, at)
			mark := at + phaseGap/2
			c.Lines = append(c.Lines, line{"mark", round(mark), marginTop - 4, round(mark), chartHeight - marginFoot})
			text := "undone"
			if s.Blocks[i].Phase == With {
				text = "changed"
			}
			c.Words = append(c.Words, word{"", text, "middle", round(mark), marginTop - 6})
			at += phaseGap
			first = at
		}
		x = append(x, at)
		at += width
	}
	c.phase(s.Blocks[len(s.Blocks)-1].Phase, first, at)
	return c, x, width
}

// phase writes the name of a phase below its blocks.
func (c *chart) phase(p Phase, from, to float64) {
	c.Words = append(c.Words, word{"", string(p), "middle", round((from + to) / 2), chartHeight - 6})
}

// grid draws lines at values with their names, at the heights that y gives.
func (c *chart) grid(values []float64, y func(float64) float64, name func(float64) string) {
	for _, v := range values {
		at := round(y(v))
		c.Lines = append(c.Lines, line{"axis", marginLeft, at, chartWidth - marginRight, at})
		c.Words = append(c.Words, word{"", name(v), "end", marginLeft - 5, at + 4})
	}
}

func (s *Step) barChart(title, class string, value func(*Block) *float64) chart {
	c, x, width := s.frame(title)
	top := 0.0
	for i := range s.Blocks {
		if v := value(&s.Blocks[i]); v != nil {
			top = max(top, *v)
		}
	}
	unit := niceStep(top)
	top = max(unit, math.Ceil(top/unit)*unit)
	y := func(v float64) float64 {
		return chartHeight - marginFoot - v/top*(chartHeight-marginTop-marginFoot)
	}
	var ticks []float64
	for v := 0.0; v <= top*1.001; v += unit {
		ticks = append(ticks, v)
	}
	c.grid(ticks, y, rate)
	var told []string
	for i := range s.Blocks {
		b := &s.Blocks[i]
		v := value(b)
		if v == nil {
			continue
		}
		kind := class
		if kind == "" {
			kind = string(b.Phase)
		}
		told = append(told, fmt.Sprintf("%s %s", b.Phase, rate(*v)))
		c.Bars = append(c.Bars, bar{kind, fmt.Sprintf("%s: %s/s", b.Phase, rate(*v)),
			round(x[i] + width*0.1), round(y(*v)), round(width * 0.8), round(max(0, y(0)-y(*v)))})
	}
	c.Label = title + " by block: " + strings.Join(told, ", ")
	return c
}

// niceStep is a step of an axis from 0 to top that gives two to five lines: 1, 2
// or 5 times a power of ten.
func niceStep(top float64) float64 {
	if top <= 0 {
		return 1
	}
	step := math.Pow(10, math.Floor(math.Log10(top)))
	switch {
	case top/step >= 5:
		return step * 2
	case top/step >= 2:
		return step
	}
	return step / 2
}

// latencyChart draws p50 and p99 on a logarithmic axis: they are often a hundred
// times apart.
func (s *Step) latencyChart() (c chart, ok bool) {
	low, high := math.Inf(1), 0.0
	for i := range s.Blocks {
		for _, v := range []*float64{s.Blocks[i].P50, s.Blocks[i].P99} {
			if v != nil && *v > 0 {
				low, high = min(low, *v), max(high, *v)
			}
		}
	}
	if high == 0 {
		return c, false
	}
	c, x, width := s.frame("Response time, logarithmic")
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if to <= from {
		to = from + 1
	}
	y := func(v float64) float64 {
		return chartHeight - marginFoot - (math.Log10(v)-from)/(to-from)*(chartHeight-marginTop-marginFoot)
	}
	var ticks []float64
	for e := from; e <= to; e++ {
		ticks = append(ticks, math.Pow(10, e))
	}
	c.grid(ticks, y, milliseconds)
	var told []string
	for _, q := range []struct {
		name  string
		value func(*Block) *float64
	}{{"p99", func(b *Block) *float64 { return b.P99 }}, {"p50", func(b *Block) *float64 { return b.P50 }}} {
		var points []string
		var lastY float64
		for i := range s.Blocks {
			v := q.value(&s.Blocks[i])
			if v == nil || *v <= 0 {
				continue
			}
			px, py := round(x[i]+width/2), round(y(*v))
			points = append(points, fmt.Sprintf("%g,%g", px, py))
			c.Dots = append(c.Dots, dot{q.name, fmt.Sprintf("%s, %s: %s", s.Blocks[i].Phase, q.name, milliseconds(*v)), px, py})
			told = append(told, fmt.Sprintf("%s %s %s", s.Blocks[i].Phase, q.name, milliseconds(*v)))
			lastY = py
		}
		if len(points) == 0 {
			continue
		}
		c.Paths = append(c.Paths, path{q.name, strings.Join(points, " ")})
		c.Words = append(c.Words, word{"name" + q.name[1:], q.name, "end", chartWidth - marginRight, max(lastY-6, marginTop+2)})
	}
	c.Label = c.Title + ", by block: " + strings.Join(told, ", ")
	return c, true
}

// round keeps a tenth of a pixel.
func round(v float64) float64 { return math.Round(v*10) / 10 }
