package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// endpoints prints what is served and what is called, with the time breakdown of
// the requests when they were recorded.
func (p *printer) endpoints(r *diagnose.Report) {
	var served, called []diagnose.Endpoint
	ledger := false
	for _, e := range r.Endpoints {
		ledger = ledger || e.Total != nil
		if e.Side == observe.Called.String() {
			called = append(called, e)
		} else {
			served = append(served, e)
		}
	}
	if len(served)+len(called) == 0 {
		if p.All || len(r.Findings) > 0 { // the verdict says it otherwise
			p.line("%s", p.say("No TCP service had traffic."))
			p.line("")
		}
		return
	}
	if !ledger {
		p.connections(served)
		return
	}
	p.requests("Services", "process", served, screenServed)
	if p.All || len(r.Findings) > 0 {
		p.requests("Calls to other services", "caller", called, screenCalled)
	}
}

// connections is the table of a window in which no request was recorded.
func (p *printer) connections(served []diagnose.Endpoint) {
	p.line("%s", p.paint(bold, p.say("Services")))
	p.line("  %s %s %8s %s %s %9s", language.Pad(p.say("address"), 22), language.Pad(p.say("process"), 16), "pid",
		language.PadLeft(p.say("new conns"), 10), language.PadLeft(p.say("answers/s"), 9), "good/s")
	shown := p.first(served, screenServed)
	for _, e := range shown {
		comm, pid := "?", ""
		if e.Process != nil {
			comm, pid = printable.Text(e.Process.Comm), fmt.Sprint(e.Process.PID)
		}
		p.line("  %-22s %-16s %8s %10d %9s %9s", joinHostPort(e.Addr, e.Port), comm, pid, e.Opened, rate(e.RPS), rate(e.GoodRPS))
	}
	p.more(served, shown)
}

const (
	requestColumns = "%s %s %7s %7s %7s %7s  %s"
	addressWidth   = 21
	processWidth   = 15                                                                      // a name the kernel keeps is no longer
	tableWidth     = 2 + addressWidth + 1 + processWidth + 1 + 7 + 1 + 7 + 1 + 7 + 1 + 7 + 2 // up to the time breakdown
)

// requests is the table of endpoints whose requests were recorded.
func (p *printer) requests(title, who string, list []diagnose.Endpoint, most int) {
	if len(list) == 0 {
		return
	}
	p.line("%s", p.paint(bold, fmt.Sprintf(requestColumns, language.Pad(p.text(title), 2+addressWidth), language.Pad(p.text(who), processWidth), "req/s", "good/s", "p50", "p99", p.say("time breakdown"))))
	shown := p.first(list, most)
	for i := range shown {
		e := &shown[i]
		comm := "?"
		if e.Process != nil {
			comm = printable.Text(e.Process.Comm)
			if e.Process.Name != nil {
				comm += "@" + printable.Text(*e.Process.Name)
			}
		}
		p50, p99 := "-", "-"
		if e.Total != nil {
			p50, p99 = duration(e.Total.P50), duration(e.Total.P99)
		}
		address := joinHostPort(e.Addr, e.Port)
		if len(address) > addressWidth { // IPv6
			p.line("  %s", address)
			address = ""
		}
		row := fmt.Sprintf(requestColumns, language.Pad("  "+address, 2+addressWidth), language.Pad(shorten(comm, processWidth), processWidth), wholeRate(e.RPS), wholeRate(e.GoodRPS), p50, p99,
			p.topParts(shares(e.Ledger), p.Width-tableWidth))
		p.line("%s", strings.TrimRight(row, " "))
		if note := endpointNote(e); note != "" && (p.All || i == 0 || e.Unanswered+e.Unfinished > 0) {
			p.wrapped("    ", 4, p.text(note))
		}
	}
	p.more(list, shown)
}

// first are the endpoints that are shown where not all are asked for.
func (p *printer) first(list []diagnose.Endpoint, most int) []diagnose.Endpoint {
	if !p.All && len(list) > most {
		return list[:most]
	}
	return list
}

func (p *printer) more(list, shown []diagnose.Endpoint) {
	if n := len(list) - len(shown); n > 0 {
		p.line("  %s", p.say("… and %d more: -v", n))
	}
	p.line("")
}

// shares is what of the total each part takes; ack_delay is no part of it.
func shares(ledger map[string]diagnose.LedgerUS) map[string]float64 {
	out := map[string]float64{}
	for name, part := range ledger {
		if part.Share != nil {
			out[name] = *part.Share
		}
	}
	return finest(out)
}

// finest leaves the server's time out where its parts are known, and names
// them by their last word.
func finest(share map[string]float64) map[string]float64 {
	whole := observe.Server.String()
	out := map[string]float64{}
	for name, part := range share {
		if rest, ok := strings.CutPrefix(name, whole+"."); ok {
			out["server "+rest[strings.LastIndexByte(rest, '.')+1:]] = part
		}
	}
	split := len(out) > 0
	for name, part := range share {
		if !strings.HasPrefix(name, whole+".") && !(split && name == whole) {
			out[name] = part
		}
	}
	return out
}

// topParts is topParts in the language of the reader.
func (p *printer) topParts(share map[string]float64, room int) string {
	return topParts(share, room, p.text)
}

// topParts names the parts with most of the time, as many as the room allows.
func topParts(share map[string]float64, room int, say func(string) string) string {
	names := slices.SortedFunc(maps.Keys(share), func(a, b string) int {
		return cmp.Or(cmp.Compare(share[b], share[a]), strings.Compare(a, b))
	})
	text := ""
	for _, name := range names {
		if share[name] < 0.01 {
			break
		}
		next := say(fmt.Sprintf("%s %.0f %%", printable.Text(name), 100*share[name]))
		if text != "" {
			next = text + ", " + next
		}
		if text != "" && ansi.StringWidth(next) > room {
			break
		}
		text = next
	}
	return text
}

// Figures of an endpoint that are worth a line of their own.
const (
	noteSlow  = 10_000 // µs: the slowest requests, and times the median
	noteTimes = 3
	noteLoss  = 1     // ‰
	noteRTT   = 5_000 // µs
	// An acknowledgement that is late makes a round trip long and no request.
	noteNetwork = 0.05 // of the time
)

// endpointNote says what the row does not: how the slowest requests differ,
// loss, long round trips, requests without an answer; empty when there is
// nothing to say.
func endpointNote(e *diagnose.Endpoint) string {
	var notes []string
	if s := e.Slow; s != nil && e.Total != nil && s.Mean >= noteSlow && s.Mean >= noteTimes*e.Total.P50 {
		share := map[string]float64{}
		for name, us := range s.Parts {
			share[name] = us / s.Mean
		}
		share = finest(share)
		const room = 48
		notes = append(notes, fmt.Sprintf("slowest %s: %s, %s", figure.Count(s.Requests), duration(s.Mean), topParts(share, room, printable.Text)))
	}
	if e.Loss != nil && *e.Loss >= noteLoss && e.Retrans != nil && *e.Retrans > 0 {
		notes = append(notes, fmt.Sprintf("loss %s ‰ (%s segments retransmitted)", short(*e.Loss), figure.Count(*e.Retrans)))
	}
	if n := e.Ledger[observe.Network.String()].Share; e.RTT != nil && *e.RTT >= noteRTT && n != nil && *n >= noteNetwork {
		note := "round trip " + duration(*e.RTT)
		if e.MinRTT != nil {
			note += " (min " + duration(*e.MinRTT) + ")"
		}
		notes = append(notes, note)
	}
	if e.TLS > 0 {
		notes = append(notes, figure.Count(int64(e.TLS))+" TLS handshakes of "+duration(e.TLSMean))
	}
	if e.TLSFailed > 0 {
		notes = append(notes, figure.Count(int64(e.TLSFailed))+" TLS handshakes failed")
	}
	if e.Unanswered > 0 {
		notes = append(notes, figure.Count(e.Unanswered)+" without an answer")
	}
	if e.SampleError > 0 {
		notes = append(notes, fmt.Sprintf("estimated from some connections, ±%s", figure.Percent(e.SampleError)))
	}
	if e.Unfinished > 0 {
		notes = append(notes, figure.Count(e.Unfinished)+" unfinished")
	}
	return strings.Join(notes, "; ")
}

// wholeRate is rate without tenths where they say nothing.
func wholeRate(f *float64) string {
	if f == nil || *f < 1000 {
		return rate(f)
	}
	return strconv.FormatFloat(*f, 'f', 0, 64)
}

// shorten cuts text to so many columns.
func shorten(text string, most int) string { return ansi.Truncate(text, most, "…") }

// duration writes µs with three significant digits.
func duration(us float64) string { return figure.Seconds(us / 1e6) }

func short(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) }
