package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
)

const shownSites, shownDropFlows = 12, 3 // of a layer, of a site

// Drops writes where packets died, for a person.
func Drops(w io.Writer, r *diagnose.DropReport, style Style) error {
	if style.Width <= 0 {
		style.Width = 100
	}
	p := &printer{Style: style, w: w}
	what := ""
	if r.Port != 0 {
		what = fmt.Sprintf(" from or to port %d", r.Port)
	}
	p.line("%s watched for %s: %s%s dropped", printable.Text(r.Host.Name), figure.Seconds(r.Window.Seconds), figure.Counted(r.Packets, "packet"), what)
	for i := range r.Layers {
		p.droppedAt(&r.Layers[i])
	}
	p.line("")
	if len(r.Clean) > 0 {
		p.hanging(0, 2, "Nothing died at: "+strings.Join(r.Clean, ", "))
	}
	for _, x := range r.NotChecked {
		p.hanging(0, 2, "Not checked: "+printable.Text(x.Cause)+": "+printable.Text(x.Because))
	}
	for i := range r.Losses {
		p.loss(&r.Losses[i])
	}
	return p.err
}

func (p *printer) droppedAt(l *diagnose.DroppedAt) {
	p.line("")
	p.line("%s", p.paint(bold, fmt.Sprintf("%-28s %12s  %s", l.Title, figure.Count(l.Packets), figure.Percent(l.Share))))
	for i := range l.Sites[:min(len(l.Sites), shownSites)] {
		p.droppedFor(&l.Sites[i])
	}
	if n := len(l.Sites) - shownSites; n > 0 {
		p.line("  and at %s more places", figure.Count(n))
	}
}

func (p *printer) droppedFor(s *diagnose.DroppedFor) {
	way := map[string]string{"in": "coming in", "out": "going out"}[s.Way]
	at := ""
	if s.Interface != "" && !strings.Contains(s.Place, s.Interface) {
		at = " at " + s.Interface
	}
	p.hanging(2, 4, fmt.Sprintf("%s %s%s, %s", figure.Count(s.Packets), printable.Text(s.Place), printable.Text(at), way))
	if r := s.Rule; r != nil {
		note := ""
		if !r.Counted {
			note = "   (no counter: found by what the others leave over)"
		}
		if r.Among > 0 {
			note += fmt.Sprintf("   (or one of %d alike)", r.Among)
		}
		p.hanging(4, 6, printable.Text(r.Text)+note)
	}
	if q := s.Qdisc; q != nil && q.RateBits > 0 {
		p.hanging(4, 6, fmt.Sprintf("shaped to %.4g Mbit/s; a packet had to wait %s times", float64(q.RateBits)/1e6, figure.Count(q.Overlimits)))
	}
	for _, f := range s.Filters {
		name := strings.Join(strings.Fields(fmt.Sprintf("filter %s %s %s", f.Kind, f.Name, f.Action)), " ")
		if f.Program != 0 {
			name += fmt.Sprintf(", BPF program %d", f.Program)
		}
		p.hanging(4, 6, printable.Text(name))
	}
	if l := s.Link; l != nil && l.PeerMTU != 0 && l.PeerMTU != l.MTU {
		p.hanging(4, 6, fmt.Sprintf("MTU %d here, %d at the other end (%s)", l.MTU, l.PeerMTU, printable.Text(l.Peer)))
	}
	if e := s.Socket; e != nil {
		p.hanging(4, 6, "socket of "+dropEnd(e))
	}
	if len(s.Kinds) > 0 {
		var kinds []string
		for k := range s.Kinds {
			kinds = append(kinds, k)
		}
		slices.SortFunc(kinds, func(a, b string) int {
			if s.Kinds[a] != s.Kinds[b] {
				return int(min(max(int64(s.Kinds[b])-int64(s.Kinds[a]), -1), 1))
			}
			return strings.Compare(a, b)
		})
		for i, k := range kinds {
			kinds[i] = figure.Count(s.Kinds[k]) + " " + k
		}
		p.hanging(4, 6, "segments: "+strings.Join(kinds, ", "))
	}
	for i := range s.Flows[:min(len(s.Flows), shownDropFlows)] {
		f := &s.Flows[i]
		p.hanging(4, 6, fmt.Sprintf("%s from %s to %s", figure.Count(f.Segments), dropEnd(&f.From), dropEnd(&f.To)))
	}
	if n := len(s.Flows) - shownDropFlows; n > 0 {
		p.line("    and %d more", n)
	}
	why := s.Reason
	if s.Location != "" {
		why = strings.TrimSpace(why + " in " + s.Location + "()")
	}
	if why != "" {
		p.hanging(4, 6, "kernel: "+printable.Text(why))
	}
}

// dropEnd is an end of a flow: "10.9.8.1:80 (nginx, pid 12)".
func dropEnd(e *diagnose.DropEnd) string {
	name := printable.Text(e.Addr)
	if e.Port != 0 {
		if strings.Contains(name, ":") {
			name = "[" + name + "]"
		}
		name += fmt.Sprintf(":%d", e.Port)
	}
	if e.PID != 0 {
		name += fmt.Sprintf(" (%s, pid %d)", printable.Text(e.Comm), e.PID)
	}
	return name
}

// hanging writes a paragraph whose later lines are indented more.
func (p *printer) hanging(first, later int, text string) {
	line, indent := "", first
	for word := range strings.FieldsSeq(text) {
		if line != "" && indent+len([]rune(line))+1+len([]rune(word)) > p.Width {
			p.line("%s%s", strings.Repeat(" ", indent), line)
			line, indent = "", later
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	p.line("%s%s", strings.Repeat(" ", indent), line)
}

// DropsJSON writes them for a program.
func DropsJSON(w io.Writer, r *diagnose.DropReport) error {
	return printable.WriteJSON(w, r)
}
