package top

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// drawEndpoint is the page of one endpoint: its time breakdown, and its
// slowest requests.
func (m *model) drawEndpoint() []string {
	lines := m.endpointHead()
	slow := m.endpoint.e.Slowest
	title := fmt.Sprintf("slowest requests of the last %s", span(m.shown.Seconds))
	lines = append(lines, m.style.bold(title))
	if len(slow) == 0 {
		return append(lines, " none was recorded")
	}
	from, to := m.slow.window(m.slowHeight())
	for i := from; i < to; i++ {
		lines = append(lines, m.slowLine(&slow[i], i == m.slow.at))
	}
	return lines
}

// slowHeight is how many of the slowest requests are on the screen.
func (m *model) slowHeight() int {
	return max(m.height-len(m.endpointHead())-1-footLines, 1)
}

func (m *model) endpointHead() []string {
	r, e := &m.endpoint, m.endpoint.e
	title := m.style.bold(e.Side+" "+r.addr) + "  " + r.proc
	if e.PID != 0 && e.Comm != "" {
		title += fmt.Sprintf(" [%d]", e.PID)
	}
	title += fmt.Sprintf("  network namespace %d", e.NetNS)
	if m.gone {
		title += "  " + m.style.reverse(" no requests any more ")
	}
	lines := []string{
		title + m.frozenMark(),
		" " + strings.Join(m.counts(), " · "),
		" " + strings.Join(m.times(), " · "),
	}
	if e.TimeNS() == 0 {
		return append(lines, "")
	}
	width := max(m.width-2, 10)
	lines = append(lines, m.style.bold("time of all requests"), " "+m.style.stack(width, e.SumNS))
	if e.SlowCount > 0 && e.SlowCount < e.Requests {
		lines = append(lines, m.style.bold(fmt.Sprintf("time of the slowest %s", figure.Count(e.SlowCount))), " "+m.style.stack(width, e.SlowNS))
	}
	return append(append(lines, m.style.bold("  part         share   mean    p50    p99  in the slowest")), m.partLines()...)
}

// counts are what was counted of the endpoint.
func (m *model) counts() []string {
	r, e := &m.endpoint, m.endpoint.e
	texts := []string{amount(r.rps) + " req/s", amount(r.errors) + " errors/s"}
	add := func(n uint64, what string) {
		if n > 0 {
			texts = append(texts, figure.Count(n)+" "+what)
		}
	}
	add(e.Unanswered, "unanswered")
	add(e.Unfinished, "in progress")
	add(e.Overlapped, "overlapped")
	if e.Recorded < e.Requests {
		add(e.Recorded, "recorded")
	}
	add(e.Connections, "connections opened")
	add(e.SynRetrans, "SYNs retransmitted")
	return texts
}

// times are the quantiles and what is known of the network.
func (m *model) times() []string {
	r, e := &m.endpoint, m.endpoint.e
	texts := []string{"no request was recorded"}
	if e.Total.Count() > 0 {
		texts = []string{
			"p50 " + duration(r.p50), "p90 " + duration(float64(e.Total.Quantile(0.9))), "p99 " + duration(r.p99), "max " + duration(float64(e.Total.Max())),
			"rtt " + duration(r.rtt) + " (min " + duration(float64(e.MinRTT)) + ")",
		}
	}
	return append(texts, "loss "+amount(r.loss)+"‰", amount(r.retrans)+" retrans/s")
}

func (m *model) partLines() []string {
	var lines []string
	e := m.endpoint.e
	for p := range observe.NumParts {
		s, ok := e.Parts[p.String()]
		if !ok || e.SumNS(p) == 0 {
			continue
		}
		share, slow := percent(e.Share(p)), percent(e.SlowShare(p))
		note := ""
		if p == observe.AckDelay { // no part of the total
			share, slow, note = "-", "", "  nobody waited for it"
		}
		name := looks[p].letter + " " + left(p.String(), 11)
		lines = append(lines, fmt.Sprintf(" %s %s %s %s %s  %s%s", m.style.part(p, name), right(share, 6),
			right(duration(e.MeanNS(p)), 6), right(duration(float64(s.Hist.Quantile(0.5))), 6), right(duration(float64(s.Hist.Quantile(0.99))), 6), left(slow, 5), note))
		if p == observe.Server && e.Split != nil {
			lines = append(lines, m.splitLines(e)...)
		}
	}
	return lines
}

// splitLines are what the server's time is made of.
func (m *model) splitLines(e *observe.Endpoint) []string {
	var lines []string
	for p := range observe.NumServerParts {
		s, ok := e.Split.Parts[p.String()]
		if !ok {
			continue
		}
		name := looks[observe.Server].letter + "  " + left(p.Short(), 10)
		slow := ""
		if total := e.SlowTotalNS(); total > 0 {
			slow = percent(e.Split.SlowShareNS(p, e.SlowNS(observe.Server)) / total)
		}
		lines = append(lines, fmt.Sprintf(" %s %s %s %s %s  %s", m.style.part(observe.Server, name), right(percent(e.Split.ShareNS(p, e.Share(observe.Server))), 6),
			right(duration(e.Split.ShareNS(p, e.MeanNS(observe.Server))), 6), right(duration(float64(s.Hist.Quantile(0.5))), 6),
			right(duration(float64(s.Hist.Quantile(0.99))), 6), left(slow, 5)))
	}
	return lines
}

// slowLine is one of the slowest requests.
func (m *model) slowLine(s *observe.RequestSample, selected bool) string {
	mark := " "
	if selected {
		mark = "›"
	}
	most := largest(s)
	text := fmt.Sprintf("%s%s %s %s %s %s", mark, clock(s.StartNS), right(duration(float64(s.TotalNS)), 6), left(most.text(), 20), left(statusText(s), 9), left(clientOf(m.endpoint.e.Side, s), 21))
	if s.Label != "" {
		text += " " + printable.Text(s.Label)
	}
	if len(s.Flags) > 0 {
		text += " " + strings.Join(s.Flags, ",")
	}
	if selected {
		return m.style.reverse(left(text, m.width))
	}
	return text
}

func largest(s *observe.RequestSample) largestPart {
	share := func(key string) float64 { return float64(s.Parts[key]) / float64(max(s.TotalNS, 1)) }
	return greatest(func(p observe.Part) float64 { return share(p.String()) }, func(p observe.ServerPart) float64 { return share(p.String()) })
}

// clientOf is the end of a request that is not the endpoint itself.
func clientOf(side string, s *observe.RequestSample) string {
	addr := s.Peer
	if side == observe.Called.String() {
		addr = s.Local
	}
	if a, err := netip.ParseAddrPort(addr); err == nil {
		addr = a.String()
	}
	return printable.Text(addr) // a zone is any text
}

func statusText(s *observe.RequestSample) string {
	text := printable.Text(s.Status)
	if text == observe.StatusUnknown.String() {
		text = "-"
	}
	if s.HTTP != 0 {
		text += fmt.Sprintf(" %d", s.HTTP)
	}
	return text
}

func clock(ns int64) string { return time.Unix(0, ns).Format("15:04:05.000") }
