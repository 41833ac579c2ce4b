package top

import (
	"math"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/slowray/slowray/internal/observe"
)

// looks are a part's letter and its colour, one of the sixteen that the
// terminal's owner chose. Red and yellow are what is nobody's work.
var looks = [observe.NumParts]struct{ letter, color string }{
	observe.AcceptWait:  {"A", "13"},
	observe.TLS:         {"L", "14"},
	observe.Upload:      {"U", "6"},
	observe.RecvWait:    {"R", "3"},
	observe.Server:      {"S", "4"},
	observe.Stall:       {"T", "5"},
	observe.SendWait:    {"W", "11"},
	observe.Network:     {"N", "2"},
	observe.Retrans:     {"X", "1"},
	observe.Unaccounted: {"?", "8"},
	observe.AckDelay:    {"D", "7"},
}

// style paints, or leaves text as it is.
type style struct{ color bool }

func (s style) part(p observe.Part, text string) string {
	if !s.color || text == "" {
		return text
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(looks[p].color)).Render(text)
}

// bold, faint and reverse are no colours: they stay where colours are not wanted.
func (s style) bold(text string) string    { return lipgloss.NewStyle().Bold(true).Render(text) }
func (s style) faint(text string) string   { return lipgloss.NewStyle().Faint(true).Render(text) }
func (s style) reverse(text string) string { return lipgloss.NewStyle().Reverse(true).Render(text) }

func (s style) warn(text string) string {
	if !s.color {
		return text
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color("1")).Render(text)
}

// cells is a part's piece of a bar: a block of its colour, or its letter.
func (s style) cells(p observe.Part, n int) string {
	if n <= 0 {
		return ""
	}
	if !s.color {
		return strings.Repeat(looks[p].letter, n)
	}
	return s.part(p, strings.Repeat("█", n))
}

// stack is a bar of exactly width columns, divided like the parts; empty when
// there is no time to divide.
func (s style) stack(width int, of func(observe.Part) float64) string {
	parts := observe.Parts()
	values := make([]float64, len(parts))
	for i, p := range parts {
		values[i] = of(p)
	}
	var b strings.Builder
	for i, n := range divide(width, values) {
		b.WriteString(s.cells(parts[i], n))
	}
	return b.String()
}

// divide shares width among values: what is more than half a percent has at
// least one, the rest goes by size, the greatest remainders first.
func divide(width int, values []float64) []int {
	n := make([]int, len(values))
	var sum float64
	for _, v := range values {
		sum += max(v, 0)
	}
	if sum <= 0 || math.IsNaN(sum) || math.IsInf(sum, 0) || width <= 0 {
		return n
	}
	over := make([]float64, len(values)) // how much more a part has than it should
	left := width
	for i, v := range values {
		exact := max(v, 0) / sum * float64(width)
		n[i] = int(exact)
		if n[i] == 0 && v/sum > 0.005 {
			n[i] = 1
		}
		over[i] = float64(n[i]) - exact
		left -= n[i]
	}
	for ; left != 0; left -= sign(left) {
		best := -1
		for i := range n {
			if left < 0 && n[i] <= 1 || values[i] <= 0 {
				continue
			}
			if best < 0 || float64(sign(left))*(over[i]-over[best]) < 0 {
				best = i
			}
		}
		if best < 0 {
			// More parts than columns: the last ones have no place.
			for i := len(n) - 1; i >= 0 && left < 0; i-- {
				if n[i] > 0 {
					n[i]--
					left++
				}
			}
			return n
		}
		n[best] += sign(left)
		over[best] += float64(sign(left))
	}
	return n
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}
