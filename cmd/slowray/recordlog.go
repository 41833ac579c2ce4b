package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/alert"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/store"
)

// recordLog tells what the recorder does: on a terminal a line each minute,
// elsewhere only what begins, ends or goes wrong; or JSON, a line for each.
type recordLog struct {
	out, err io.Writer
	json     bool
	terminal bool
	columns  func() int           // of the terminal, which may change; 0 where there is none
	targets  func() []ship.Status // nil: none

	mu       sync.Mutex
	dir      string // the history's
	seconds  int    // since the last line
	requests uint64 // in them
	slow     uint64
	failed   uint64
}

func newRecordLog(s *streams, asJSON bool) *recordLog {
	columns := func() int {
		n, _ := commandline.TerminalColumns(s.out)
		return n
	}
	_, terminal := commandline.TerminalColumns(s.out)
	return &recordLog{out: s.out, err: s.err, json: asJSON, terminal: terminal, columns: columns}
}

// recordEvent is a line of --json.
type recordEvent struct {
	Event string    `json:"event"` // "begin", "window", "finding", "trouble", "end"
	At    time.Time `json:"at"`

	Dir  string `json:"dir,omitempty"`  // of begin
	Page string `json:"page,omitempty"` // of begin: its address; empty when there is none
	Text string `json:"text,omitempty"` // of trouble

	// Of a window.
	Seconds  float64  `json:"seconds,omitempty"`
	Requests *uint64  `json:"requests,omitempty"` // since the window before was judged
	Findings []string `json:"findings,omitempty"` // causes that go on, worst first

	// Of a finding: when it began, and ended.
	Onset   *time.Time     `json:"onset,omitempty"`
	End     *time.Time     `json:"end,omitempty"`
	Windows int            `json:"windows,omitempty"`
	Finding *cause.Finding `json:"finding,omitempty"`

	Status *recordStatus `json:"status,omitempty"` // of end
}

// recordStatus is what was done from begin to end.
type recordStatus struct {
	Requests     uint64 `json:"requests"` // counted
	Stored       uint64 `json:"requests_stored"`
	Slow         uint64 `json:"slow"`
	Failed       uint64 `json:"failed"`
	Windows      uint64 `json:"windows"`
	WindowsLost  uint64 `json:"windows_lost"`
	Dropped      uint64 `json:"dropped"`
	HistoryBytes int64  `json:"history_bytes"`

	Targets []ship.Status `json:"targets,omitempty"` // of --to
}

// Second implements record.Sink.
func (l *recordLog) Second(_ int64, endpoints []store.Second) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seconds++
	for i := range endpoints {
		if e := &endpoints[i].Endpoint; e.Side == observe.Served.String() {
			l.requests += e.Requests
		}
	}
}

// Request implements record.Sink.
func (l *recordLog) Request(r *store.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Side != observe.Served {
		return // a call of one service here to another one is a request there
	}
	switch r.Why {
	case store.Slow:
		l.slow++
	case store.Failed:
		l.failed++
	case store.Sampled:
	}
}

// Window implements record.Sink.
func (l *recordLog) Window(w *record.Window) {
	if w.Err != nil {
		return // told as trouble
	}
	sent := l.sentTo() // whoever is asked may be telling of trouble just now
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.json {
		l.windowJSON(w)
	} else {
		l.windowText(w, sent)
	}
	l.seconds, l.requests, l.slow, l.failed = 0, 0, 0, 0
}

func (l *recordLog) windowJSON(w *record.Window) {
	end := w.Observation.Window.Start.Add(time.Duration(w.Observation.Window.Seconds * float64(time.Second)))
	requests := l.requests
	e := recordEvent{Event: "window", At: end, Seconds: w.Observation.Window.Seconds, Requests: &requests}
	for i := range w.Findings {
		if f := &w.Findings[i]; f.End.IsZero() {
			e.Findings = append(e.Findings, string(f.Cause))
		}
	}
	l.line(e)
	for i := range w.Findings {
		f := &w.Findings[i]
		if !f.New && f.End.IsZero() {
			continue
		}
		e := recordEvent{Event: "finding", At: end, Onset: &f.Onset, Windows: f.Windows, Finding: &f.Finding}
		if !f.End.IsZero() {
			e.End = &f.End
		}
		l.line(e)
	}
}

// mostCauses is how many causes the line of a window names.
const mostCauses = 3

// clock is a moment as a line begins with it.
const clock = "15:04:05"

func (l *recordLog) windowText(w *record.Window, sent []ship.Status) {
	now := time.Now().Format(clock)
	if l.terminal {
		rate := float64(l.requests) / float64(max(l.seconds, 1))
		line := fmt.Sprintf("%s requests/s answered, kept: the slowest %s, %s failed", figure.Count(int64(rate+0.5)), figure.Count(l.slow), figure.Count(l.failed))
		if causes := goingOn(w.Findings); len(causes) > 0 {
			line += "; found: " + strings.Join(causes[:min(len(causes), mostCauses)], ", ")
			if more := len(causes) - mostCauses; more > 0 {
				line += fmt.Sprintf(", and %d more: %s", more, l.readBack(shell.Line("slowray why --at %s", shell.Word(now[:len("15:04")]))))
			}
		} else if w.Report.CutShort != "" {
			line += "; not judged in full"
		} else {
			line += "; nothing found"
		}
		for _, t := range sent {
			if text := shipLine(&t); text != "" {
				line += "; " + text
			}
		}
		fmt.Fprint(l.out, printable.Table([][]string{{now, line}}, l.columns()))
		return
	}
	for i := range w.Findings {
		f := &w.Findings[i]
		switch {
		case f.Role != cause.RoleCause:
		case f.New:
			l.say("found: %s [%s], %s", printable.Text(f.Title), f.Cause, report.SubjectText(&f.Subject))
		case !f.End.IsZero():
			l.say("over: %s [%s], %s: from %s to %s", printable.Text(f.Title), f.Cause, report.SubjectText(&f.Subject), f.Onset.Local().Format(clock), f.End.Local().Format(clock))
		}
	}
}

// sentTo is how far each target of --to is.
func (l *recordLog) sentTo() []ship.Status {
	if l.targets == nil {
		return nil
	}
	return l.targets()
}

// goingOn names the causes that go on, and since when, worst first.
func goingOn(findings []record.Finding) []string {
	var out []string
	for i := range findings {
		f := &findings[i]
		if f.Role != cause.RoleCause || !f.End.IsZero() {
			continue
		}
		text := printable.Text(f.Title)
		of := f.Subject
		of.NetNS = 0 // a number that tells nobody anything
		if s := report.SubjectText(&of); f.Subject.Comm != "" || f.Subject.Port != 0 {
			text += " (" + s + ")"
		}
		if !f.New {
			text += " since " + f.Onset.Local().Format(clock)
		}
		out = append(out, text)
	}
	return out
}

// readBack is a command that reads the history, wherever that is.
func (l *recordLog) readBack(command shell.Command) shell.Command {
	if l.dir == historyDir {
		return command
	}
	return command.Then(shell.Line("--dir %s", shell.Path(l.dir)))
}

// begin tells where the history is and how to open the page, whose address is
// empty when there is none; the first window is judged when it is over.
func (l *recordLog) begin(dir, page string, window time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.json {
		l.line(recordEvent{Event: "begin", At: time.Now(), Dir: dir, Page: page})
		return
	}
	l.dir = dir
	read := l.readBack(shell.Line("slowray why --at -5m"))
	l.say("slowray: recording into %s; Ctrl-C ends", printable.Text(dir))
	fmt.Fprintf(l.out, "slowray: read it back: %s\n", read) // not broken: it is copied
	if page != "" {
		l.say("slowray: open %s", page)
	}
	l.say("slowray: first verdict in %s", figure.Seconds(window.Seconds()))
}

// alerts tells that people are notified, by what, and where what is open is kept.
func (l *recordLog) alerts(dir string, rules *alert.Config) {
	status := shell.Line("slowray alert status")
	if dir != alertsDir {
		status = status.Then(shell.Line("--dir %s", shell.Path(dir)))
	}
	l.tell(fmt.Sprintf("alerts: %s, %s; kept in %s: %s",
		figure.Counted(len(rules.Receivers), "receiver"), figure.Counted(len(rules.Routes), "route"), dir, status))
}

// tell tells people what goes as it should.
func (l *recordLog) tell(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.json {
		l.say("slowray: %s", printable.Text(text))
	}
}

// trouble tells what went wrong.
func (l *recordLog) trouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.json {
		l.line(recordEvent{Event: "trouble", At: time.Now(), Text: err.Error()})
	}
	fmt.Fprintf(l.err, "slowray: %s\n", printable.Text(err.Error()))
}

// end tells what was done.
func (l *recordLog) end(s record.Status) {
	sent := l.sentTo()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.json {
		l.line(recordEvent{Event: "end", At: time.Now(), Status: &recordStatus{
			Requests: s.Requests.Seen, Stored: s.Store.Requests, Slow: s.Requests.Slow, Failed: s.Requests.Failed,
			Windows: s.Windows, WindowsLost: s.Failed, Dropped: s.Store.Dropped, HistoryBytes: s.Store.Bytes,
			Targets: sent,
		}})
		return
	}
	l.say("slowray: %s requests counted, %s kept, %s windows judged",
		figure.Count(s.Requests.Seen), figure.Count(s.Requests.Slow+s.Requests.Failed+s.Requests.Sampled), figure.Count(s.Windows))
	for _, t := range sent {
		gone := ""
		if t.GaveUp > 0 {
			gone = ", " + figure.Count(t.GaveUp) + " were given up"
		}
		l.say("slowray: %s: %s records sent, %s wait on disk%s", printable.Text(t.Title), figure.Count(t.Sent), figure.Bytes(t.Bytes), gone)
	}
	for _, loss := range s.Losses {
		l.say("slowray: %s: %s: %s", loss.Label(), loss.What, figure.Count(loss.Count))
	}
}

// say writes a line for people; on a terminal it is broken at words.
func (l *recordLog) say(format string, args ...any) {
	fmt.Fprintln(l.out, printable.Fold(fmt.Sprintf(format, args...), l.columns()))
}

// line writes an event. Whoever reads may have left: the history is what counts.
func (l *recordLog) line(e recordEvent) {
	e.At = e.At.UTC()
	_ = printable.WriteJSONLine(l.out, e)
}
