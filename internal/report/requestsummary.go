package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// RequestSummary writes what requests that were printed one by one come to: the tables of
// the first screen, and last a line with the endpoint that most of their time went to and the
// command that says why. Nothing is written of no requests.
func RequestSummary(w io.Writer, endpoints []observe.Endpoint, seconds float64, listed int, why shell.Command, style Style) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	p := &printer{Style: style, w: w}
	var rows []diagnose.Endpoint
	for i := range endpoints {
		e := diagnose.EndpointOf(&endpoints[i], seconds)
		if e.Total == nil && e.Unfinished == 0 {
			continue
		}
		rows = append(rows, e)
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b diagnose.Endpoint) int { return cmp.Compare(spent(&b), spent(&a)) })
	p.line("")
	served, called := bySide(rows)
	p.requests("Services", "process", served, screenServed)
	p.requests("Calls to other services", "caller", called, screenCalled)
	of := served // a client's requests are those of the service that it calls
	if len(of) == 0 {
		of = called
	}
	most := &of[0]
	who := joinHostPort(most.Addr, most.Port)
	if most.Process != nil {
		who = fmt.Sprintf("%s :%d", printable.Text(most.Process.Comm), most.Port)
	}
	text := fmt.Sprintf("%s in %s%s, most time in %s", countedBySide(served, called), figure.Seconds(seconds), listedText(listed, rows), who)
	if state := stateOf(most); len(state) > 0 {
		text += " " + strings.Join(state, ", ")
	}
	p.wrapped("", 0, text)
	if !why.IsZero() {
		p.line("why: %s", p.paint(bold, printable.Text(why.String())))
	}
	return p.err
}

// spent is how long all requests of an endpoint took, in µs.
func spent(e *diagnose.Endpoint) (us float64) {
	for part, l := range e.Ledger {
		if l.Share != nil && observe.PartName(part) == part {
			us += l.Mean * float64(*e.Requests)
		}
	}
	return us
}

// countedBySide is how many requests were served, and how many were calls.
func countedBySide(served, called []diagnose.Endpoint) string {
	if len(served) == 0 || len(called) == 0 {
		return figure.Counted(requestsOf(served)+requestsOf(called), "request")
	}
	return figure.Counted(requestsOf(served), "request") + " and " + figure.Counted(requestsOf(called), "call")
}

// listedText is how many have a line, where others have none.
func listedText(listed int, rows []diagnose.Endpoint) string {
	if int64(listed) >= requestsOf(rows) {
		return ""
	}
	return ", " + figure.Count(listed) + " listed"
}

func requestsOf(list []diagnose.Endpoint) (n int64) {
	for i := range list {
		n += *list[i].Requests + list[i].Unfinished
	}
	return n
}
