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
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// endpoints prints what is served and what is called, with the time breakdown of
// the requests when they were recorded.
func (p *printer) endpoints(r *diagnose.Report) {
	served, called := bySide(r.Endpoints)
	if len(served)+len(called) == 0 {
		if p.All || len(r.Findings) > 0 { // the verdict says it otherwise
			p.line("%s", p.say("No TCP service had traffic."))
			p.line("")
		}
		return
	}
	if !slices.ContainsFunc(r.Endpoints, func(e diagnose.Endpoint) bool { return e.Total != nil }) {
		p.connections(served)
		return
	}
	p.requests("Services", "process", served, screenServed)
	if p.All || len(r.Findings) > 0 {
		p.requests("Calls to other services", "caller", called, screenCalled)
	}
}

// bySide parts what is served here from what is called.
func bySide(list []diagnose.Endpoint) (served, called []diagnose.Endpoint) {
	for _, e := range list {
		if e.Side == observe.Called.String() {
			called = append(called, e)
		} else {
			served = append(served, e)
		}
	}
	return served, called
}

// connections is the table of a window in which no request was recorded.
func (p *printer) connections(served []diagnose.Endpoint) {
	p.line("%s", p.paint(bold, p.say("Services")))
	if p.narrow() {
		p.line("  %s %s %s", printable.Pad(p.say("process"), 22), printable.PadLeft(p.say("new conns"), 10), printable.PadLeft(p.say("answers/s"), 9))
	} else {
		p.line("  %s %s %8s %s %s %9s", printable.Pad(p.say("address"), 22), printable.Pad(p.say("process"), 16), "pid",
			printable.PadLeft(p.say("new conns"), 10), printable.PadLeft(p.say("answers/s"), 9), "good/s")
	}
	shown := p.first(served, screenServed)
	apart := p.apart(shown)
	for i, e := range shown {
		comm, pid := "?", ""
		if e.Process != nil {
			comm, pid = printable.Text(e.Process.Comm), fmt.Sprint(e.Process.PID)
		}
		if p.narrow() {
			p.line("  %-22s %10d %9s", printable.Cut(fmt.Sprintf("%s :%d", comm, e.Port), 22), e.Opened, rate(e.RPS))
			if apart[i] != "" {
				p.wrapped("    ", 4, apart[i])
			}
			continue
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

// On few columns a service is named by its process and port.
const (
	narrowColumns = "%-23s %7s %7s  %s"
	narrowWidth   = 23 + 1 + 7 + 1 + 7 + 2
)

// narrow says that the tables have no room for all their columns, of which the last one
// holds a part of the time at least.
func (p *printer) narrow() bool { return p.Width < tableWidth+len("accept_wait 58 %") }

// requests is the table of endpoints whose requests were recorded.
func (p *printer) requests(title, who string, list []diagnose.Endpoint, most int) {
	if len(list) == 0 {
		return
	}
	if p.narrow() {
		p.line("%s", p.paint(bold, fmt.Sprintf(narrowColumns, printable.Pad(p.text(title), 23), "req/s", "p99", p.say("time breakdown"))))
	} else {
		p.line("%s", p.paint(bold, fmt.Sprintf(requestColumns, printable.Pad(p.text(title), 2+addressWidth), printable.Pad(p.text(who), processWidth), "req/s", "good/s", "p50", "p99", p.say("time breakdown"))))
	}
	shown := p.first(list, most)
	apart := p.apart(shown)
	for i := range shown {
		e := &shown[i]
		comm := commOf(e)
		p50, p99 := "-", "-"
		if e.Total != nil {
			p50, p99 = duration(e.Total.P50), duration(e.Total.P99)
		}
		address := joinHostPort(e.Addr, e.Port)
		if p.narrow() {
			address = narrowName(e)
			row := fmt.Sprintf(narrowColumns, "  "+printable.Cut(address, addressWidth), wholeRate(e.RPS), p99, p.topParts(shares(e.Ledger), p.Width-narrowWidth))
			p.line("%s", strings.TrimRight(printable.Cut(row, p.Width), " "))
			if apart[i] != "" {
				p.wrapped("    ", 4, apart[i])
			}
			continue
		}
		if len(address) > addressWidth { // IPv6
			p.line("  %s", address)
			address = ""
		}
		row := fmt.Sprintf(requestColumns, printable.Pad("  "+address, 2+addressWidth), printable.Pad(printable.Cut(comm, processWidth), processWidth), wholeRate(e.RPS), wholeRate(e.GoodRPS), p50, p99,
			p.topParts(shares(e.Ledger), p.Width-tableWidth))
		p.line("%s", strings.TrimRight(row, " "))
		if apart[i] != "" {
			p.wrapped("    ", 4, apart[i])
		}
		if note := endpointNote(e); note != "" && (p.All || i == 0 || e.Unanswered+e.Unfinished > 0) {
			p.wrapped("    ", 4, p.text(note))
		}
	}
	p.more(list, shown)
}

// commOf names the process of an endpoint, with its container.
func commOf(e *diagnose.Endpoint) string {
	switch {
	case e.Process == nil:
		return "?"
	case e.Process.Workload != nil:
		return printable.Text(e.Process.Comm) + "@" + printable.Text(e.Process.Workload.Controller())
	case e.Process.Name != nil:
		return printable.Text(e.Process.Comm) + "@" + printable.Text(*e.Process.Name)
	}
	return printable.Text(e.Process.Comm)
}

// narrowName is what an endpoint is called on few columns.
func narrowName(e *diagnose.Endpoint) string {
	if comm := commOf(e); e.Side == observe.Served.String() && comm != "?" {
		return fmt.Sprintf("%s :%d", comm, e.Port)
	}
	return joinHostPort(e.Addr, e.Port)
}

// apart says of each of the endpoints what tells it from those whose rows have the same
// name: empty where there are none.
func (p *printer) apart(list []diagnose.Endpoint) []string {
	name := func(e *diagnose.Endpoint) string {
		if p.narrow() {
			return narrowName(e)
		}
		return joinHostPort(e.Addr, e.Port) + " " + commOf(e)
	}
	same := map[string][]*diagnose.Endpoint{}
	for i := range list {
		same[name(&list[i])] = append(same[name(&list[i])], &list[i])
	}
	pid := func(e *diagnose.Endpoint) int {
		if e.Process == nil {
			return 0
		}
		return e.Process.PID
	}
	out := make([]string, len(list))
	for i := range list {
		e := &list[i]
		twins := same[name(e)]
		differs := func(is func(*diagnose.Endpoint) bool) bool {
			return slices.ContainsFunc(twins, func(t *diagnose.Endpoint) bool { return !is(t) })
		}
		var parts []string
		if differs(func(t *diagnose.Endpoint) bool { return t.Addr == e.Addr }) {
			parts = append(parts, joinHostPort(e.Addr, e.Port))
		}
		if pid(e) != 0 && differs(func(t *diagnose.Endpoint) bool { return pid(t) == pid(e) }) {
			parts = append(parts, fmt.Sprintf("pid %d", pid(e)))
		}
		if e.NetNS != 0 && differs(func(t *diagnose.Endpoint) bool { return t.NetNS == e.NetNS }) {
			parts = append(parts, p.text(fmt.Sprintf("network namespace %d", e.NetNS)))
		}
		out[i] = strings.Join(parts, ", ")
	}
	return out
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

// finest leaves the server's time out where its parts are known.
func finest(share map[string]float64) map[string]float64 {
	out := map[string]float64{}
	split := false
	for name, part := range share {
		out[observe.PartName(name)] = part
		split = split || observe.PartName(name) != name
	}
	if split {
		delete(out, observe.Server.String())
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
	if w := e.Workload; w != nil {
		notes = append(notes, workloadNote(w))
	}
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
		if e.Connect > 0 {
			notes = append(notes, "TCP handshakes of "+duration(e.Connect))
		}
		notes = append(notes, figure.Count(int64(e.TLS))+" TLS handshakes of "+duration(e.TLSMean))
	}
	if t := e.TLSIs; t != nil && t.Full+t.Resumed > 0 {
		notes = append(notes, figure.Count(int64(t.Resumed))+" resumed, "+figure.Count(int64(t.Full))+" full")
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

// workloadNote is who a workload is, in words.
func workloadNote(w *observe.Workload) string {
	note := w.String()
	if w.Pod != "" && w.Name != w.Pod && w.Name != "" {
		note += " of " + w.Kind + " " + w.Name
	} else if w.Pod == "" {
		note = w.Kind + " " + note
	}
	if w.Node != "" {
		note += " on " + w.Node
	}
	return printable.Text(note)
}

// wholeRate is rate without tenths where they say nothing.
func wholeRate(f *float64) string {
	if f == nil || *f < 1000 {
		return rate(f)
	}
	return strconv.FormatFloat(*f, 'f', 0, 64)
}

// duration writes µs with three significant digits.
func duration(us float64) string { return figure.Seconds(us / 1e6) }

func short(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) }
