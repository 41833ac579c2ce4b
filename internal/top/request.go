package top

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// drawRequest is the page of one request: its life as a waterfall of parts.
func (m *model) drawRequest() []string {
	s := &m.request
	lines := []string{m.style.bold(fmt.Sprintf("request %d of a connection, %s", s.Seq, clock(s.StartNS))) + m.frozenMark()}
	if s.Label != "" {
		lines = append(lines, " "+printable.Text(s.Label))
	}
	lines = append(lines, " "+strings.Join(requestFacts(m.endpoint.e.Side, s), " · "))
	lines = append(lines, " "+strings.Join(networkFacts(s), " · "))
	if len(s.Flags) > 0 {
		lines = append(lines, " "+strings.Join(s.Flags, ", "))
	}
	lines = append(lines, "", m.style.bold("  part           from   took share"))
	return append(lines, m.waterfall(s)...)
}

func requestFacts(side string, s *observe.RequestSample) []string {
	from, to := s.Peer, s.Local
	if side == observe.Called.String() {
		from, to = to, from
	}
	facts := []string{printable.Text(from) + " → " + printable.Text(to)}
	if s.PID != 0 {
		facts = append(facts, fmt.Sprintf("pid %d", s.PID))
	}
	if status := statusText(s); status != "-" {
		facts = append(facts, status)
	}
	return facts
}

func networkFacts(s *observe.RequestSample) []string {
	facts := []string{figure.Count(s.BytesIn) + " bytes in", figure.Count(s.BytesOut) + " bytes out"}
	if s.RTTNS > 0 {
		facts = append(facts, "rtt "+duration(float64(s.RTTNS))+" (min "+duration(float64(s.MinRTTNS))+")")
	}
	return append(facts, figure.Counted(s.Retrans, "segment")+" retransmitted")
}

// waterfall draws every part where it began, in the order in which a request
// spends them.
func (m *model) waterfall(s *observe.RequestSample) []string {
	const text = 34 // columns of the figures
	width := max(m.width-text-1, 10)
	var lines []string
	var from int64
	for p := range observe.NumParts {
		ns := s.Parts[p.String()]
		if ns == 0 {
			continue
		}
		begin, cells := piece(from, ns, s.TotalNS, width)
		if p == observe.AckDelay {
			lines = append(lines, m.totalLine(s),
				" "+m.style.part(p, looks[p].letter+" "+left(p.String(), 11))+right(duration(float64(from)), 7)+right(duration(float64(ns)), 7)+"       nobody waited for it: not in the total")
			return lines
		}
		lines = append(lines, " "+m.style.part(p, looks[p].letter+" "+left(p.String(), 11))+
			right(duration(float64(from)), 7)+right(duration(float64(ns)), 7)+right(percent(float64(ns)/float64(s.TotalNS)), 6)+" "+
			blanks(begin)+m.style.cells(p, cells))
		if p == observe.Server {
			lines = append(lines, m.splitOf(s)...)
		}
		from += ns
	}
	return append(lines, m.totalLine(s))
}

// splitOf is what the server did in its time; when, it does not tell.
func (m *model) splitOf(s *observe.RequestSample) []string {
	var lines []string
	for p := range observe.NumServerParts {
		if ns := s.Parts[p.String()]; ns != 0 {
			lines = append(lines, " "+m.style.part(observe.Server, looks[observe.Server].letter+"  "+left(p.Short(), 10))+
				right("", 7)+right(duration(float64(ns)), 7)+right(percent(float64(ns)/float64(s.TotalNS)), 6))
		}
	}
	return lines
}

func (m *model) totalLine(s *observe.RequestSample) string {
	return m.style.bold("   " + left("total", 18) + right(duration(float64(s.TotalNS)), 7))
}

// piece places a time on a line of width columns that stands for the total. A
// time that is not nothing has at least one column.
func piece(from, ns, total int64, width int) (begin, cells int) {
	if total <= 0 {
		return 0, 0
	}
	column := func(at int64) int { return int(float64(at)/float64(total)*float64(width) + 0.5) }
	begin = min(column(from), width-1)
	return begin, min(max(column(from+ns)-begin, 1), width-begin)
}
