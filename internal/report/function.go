package report

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// How much of each function is shown.
const (
	shownFunctions = 20 // in full; the others in a line each, at most shownRows
	shownRows      = 200
	shownThreads   = 4
	shownFrames    = 12
	barColumns     = 40
)

// Functions writes what was seen of the calls of functions, for a person.
func Functions(w io.Writer, o *observe.Functions, style Style) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	p := &printer{Style: style, w: w}
	p.functionsHead(o)
	called := 0
	for i := range o.Calls {
		if o.Calls[i].Calls > 0 || o.Calls[i].Running > 0 {
			called++
		}
	}
	if len(o.Calls) > 1 {
		p.functionTable(o)
	}
	full := 0
	for i := range o.Calls {
		f := &o.Calls[i]
		if (f.Calls == 0 && f.Running == 0 && len(o.Calls) > 1) || full == shownFunctions {
			continue
		}
		full++
		p.function(o, f)
	}
	if called == 0 {
		p.line("%s", p.paint(yellow, "Nothing was called in this time (calls that were under way already are not seen)."))
	}
	p.functionsFoot(o)
	return p.err
}

func (p *printer) functionsHead(o *observe.Functions) {
	who := o.Target
	if o.Process != nil {
		who = fmt.Sprintf("%s (pid %d)", o.Process.Comm, o.Process.PID)
	}
	n := len(o.Calls)
	p.line("%s: %s watched for %s", printable.Text(who), figure.Counted(n, "function"), figure.Seconds(float64(o.WindowNS)/1e9))
	if o.Stopped != "" {
		p.wrappedIn(yellow, "Ended early: "+printable.Text(o.Stopped))
	}
	p.line("")
}

// functionTable is a line for each function that was called.
func (p *printer) functionTable(o *observe.Functions) {
	width := 20
	for i := range o.Calls {
		if o.Calls[i].Calls > 0 {
			width = max(width, utf8.RuneCountInString(printable.Text(o.Calls[i].Name)))
		}
	}
	width = min(width, max(p.Width-58, 20))
	p.line("%s", p.paint(bold, fmt.Sprintf("%-*s %10s %8s %9s %9s %9s", width, "function", "calls", "per s", "p50", "p99", "in all")))
	rows, silent := 0, 0
	for i := range o.Calls {
		f := &o.Calls[i]
		if f.Calls == 0 && f.Running == 0 {
			silent++
			continue
		}
		if rows++; rows > shownRows {
			continue
		}
		p50, p99, all := "-", "-", "-"
		if f.Returned > 0 {
			p50, p99, all = nsText(f.Latency.Quantile(0.5)), nsText(f.Latency.Quantile(0.99)), nsText(f.TotalNS)
		}
		p.line("%s %10s %8s %9s %9s %9s", padded(printable.Text(f.Name), width), figure.Count(f.Calls), perSecond(f.Calls, o.WindowNS), p50, p99, all)
	}
	if rows > shownRows {
		p.line("%s more", figure.Count(rows-shownRows))
	}
	if silent > 0 {
		p.line("%s %s not called", figure.Count(silent), map[bool]string{true: "was", false: "were"}[silent == 1])
	}
	p.line("")
}

func nsText(ns int64) string { return figure.Seconds(float64(ns) / 1e9) }

func perSecond(n uint64, window int64) string {
	r := float64(n) / (float64(window) / 1e9)
	if r >= 100 {
		return figure.Count(int64(r + 0.5))
	}
	return fmt.Sprintf("%.3g", r)
}

// padded is text in a column, cut in its middle when it does not fit.
func padded(s string, width int) string {
	r := []rune(s)
	if len(r) > width {
		half := (width - 1) / 2
		r = append(append(append([]rune{}, r[:width-1-half]...), '…'), r[len(r)-half:]...)
	}
	return string(r) + strings.Repeat(" ", width-len(r))
}

// function tells of one function in full.
func (p *printer) function(o *observe.Functions, f *observe.Function) {
	title := printable.Text(f.Name)
	if f.Module != "" {
		title += " in " + printable.Text(f.Module)
	}
	p.wrappedIn(bold, title)
	label := func(name, text string) { p.wrapped(fmt.Sprintf("   %-9s", name), 12, printable.Text(text)) }
	if f.Note != "" {
		label("note", f.Note)
	}
	calls := fmt.Sprintf("%s, %s a second", figure.Count(f.Calls), perSecond(f.Calls, o.WindowNS))
	if f.Errors != "" {
		calls += fmt.Sprintf("; failed: %s", figure.Count(f.Failed))
		if f.Returned > 0 && f.Failed > 0 {
			calls += fmt.Sprintf(" (%s)", figure.Percent(float64(f.Failed)/float64(f.Returned)))
		}
	}
	label("calls", calls)
	if f.Returned > 0 {
		h := &f.Latency
		label("took", fmt.Sprintf("p50 %s, p90 %s, p99 %s, at most %s; %s in all",
			nsText(h.Quantile(0.5)), nsText(h.Quantile(0.9)), nsText(h.Quantile(0.99)), nsText(f.MaxNS), nsText(f.TotalNS)))
		if f.CPUNS >= 0 && f.TotalNS > 0 {
			label("on CPU", fmt.Sprintf("%s of it (%s); the rest it waited", nsText(f.CPUNS), figure.Percent(float64(f.CPUNS)/float64(f.TotalNS))))
		}
	}
	p.unreturned(f, label)
	if s := f.Share; s != nil {
		text := "no slow request was seen"
		if s.Requests > 0 {
			text = fmt.Sprintf("%s of the time of the %s slowest requests was spent inside (%s of %s, in %s of them)",
				figure.Percent(float64(s.InsideNS)/float64(max(s.TimeNS, 1))), figure.Count(s.Requests), nsText(s.InsideNS), nsText(s.TimeNS), figure.Count(s.Touched))
		}
		label("requests", text)
	}
	p.histogram(f)
	p.functionThreads(f)
	p.slowest(f)
	p.line("")
}

// unreturned tells of calls that have no duration.
func (p *printer) unreturned(f *observe.Function, label func(name, text string)) {
	if f.Running > 0 {
		longest := f.Unfinished[0]
		label("running", fmt.Sprintf("%s had not returned at the end, the longest for %s (%s, thread %d)",
			figure.Count(f.Running), nsText(longest.DurationNS), longest.Comm, longest.TID))
	}
	if f.Left > 0 {
		label("left", fmt.Sprintf("%s without a return that was seen: by longjmp, an exception, a jump to another function, or the thread's end", figure.Count(f.Left)))
	}
	if f.Early > 0 {
		label("before", fmt.Sprintf("%s more returned that had begun before", figure.Count(f.Early)))
	}
}

// histogram draws the durations by powers of two.
func (p *printer) histogram(f *observe.Function) {
	bars := f.Latency.Bars()
	if len(bars) < 2 {
		return
	}
	most := uint64(0)
	for _, b := range bars {
		most = max(most, b.Count)
	}
	for _, b := range bars {
		n := int((b.Count*barColumns + most - 1) / most)
		p.line("   %9s to %-9s %10s %s", nsText(b.FromNS), nsText(b.ToNS), figure.Count(b.Count), strings.Repeat("#", n))
	}
}

func (p *printer) functionThreads(f *observe.Function) {
	for i := range f.Threads[:min(len(f.Threads), shownThreads)] {
		t := &f.Threads[i]
		name := "threads"
		if i > 0 {
			name = ""
		}
		text := fmt.Sprintf("%s %d: %s", printable.Text(t.Comm), t.TID, figure.Counted(t.Calls, "call"))
		if t.PID != t.TID {
			text = fmt.Sprintf("%s %d/%d: %s", printable.Text(t.Comm), t.PID, t.TID, figure.Counted(t.Calls, "call"))
		}
		if t.TotalNS > 0 {
			text += fmt.Sprintf(", %s in all, at most %s", nsText(t.TotalNS), nsText(t.MaxNS))
		}
		p.line("   %-8s %s", name, text)
	}
	if n := len(f.Threads) - shownThreads; n > 0 {
		p.line("   %-8s and more", "")
	}
}

// slowest lists calls with what was asked for and who called.
func (p *printer) slowest(f *observe.Function) {
	for i := range f.Slowest {
		c := &f.Slowest[i]
		name := ""
		if i == 0 {
			name = map[bool]string{true: "slowest", false: "examples"}[f.Timed]
		}
		when := time.Unix(0, c.StartNS).Format("15:04:05.000")
		text := when
		if f.Timed {
			text = fmt.Sprintf("%s at %s", nsText(c.DurationNS), when)
			if f.CPUNS >= 0 {
				text += fmt.Sprintf(", on CPU %s", nsText(c.CPUNS))
			}
		}
		text += fmt.Sprintf(", %s %d", c.Comm, c.TID)
		if len(c.Args) > 0 {
			text += ": " + strings.Join(c.Args, ", ")
		}
		// Many functions have no result: only for who asked for such things.
		if c.Result != nil && (f.Errors != "" || len(c.Args) > 0) {
			text += fmt.Sprintf(" → %s", resultText(*c.Result))
		}
		p.wrapped(fmt.Sprintf("   %-9s", name), 12, printable.Text(text))
		if s := stackText(c.Kernel); s != "" {
			p.wrapped("             kernel: ", 15, printable.Text(s))
		}
		if s := stackText(c.Stack); s != "" {
			p.wrapped("             by ", 15, printable.Text(s))
		}
	}
}

// resultText is a result as a number; an address is easier to tell in
// hexadecimal.
func resultText(n int64) string {
	switch {
	case n >= 1<<31 && n < 1<<32: // a negative int
		return fmt.Sprint(int32(n))
	case n > 1<<32 || n < -1<<32:
		return fmt.Sprintf("%#x", uint64(n))
	}
	return fmt.Sprint(n)
}

// stackText is a stack on few lines, the one who called first.
func stackText(frames []observe.Frame) string {
	var parts []string
	for i := range frames[:min(len(frames), shownFrames)] {
		parts = append(parts, frames[i].Name)
	}
	if len(frames) > shownFrames {
		parts = append(parts, "…")
	}
	return strings.Join(parts, " ← ")
}

func (p *printer) functionsFoot(o *observe.Functions) {
	price := "Price: " + figure.Counted(o.Price.Hits, "hit")
	if ns := o.Price.PerHitNS; ns > 0 {
		spent := float64(o.Price.Hits) * float64(ns)
		price += fmt.Sprintf(", about %s each: %s of one CPU", nsText(ns), figure.Percent(spent/float64(o.WindowNS)))
	}
	p.line("%s", price)
	for _, n := range o.Notes {
		p.wrapped("Note: ", 6, printable.Text(n))
	}
	for i := range o.Losses {
		p.loss(&o.Losses[i])
	}
}
