package waterfall

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/report"
)

const barWidth = 20

// Text writes traces for a person: of each its steps, with a bar for their time, and under
// them with what each end spent it.
func Text(w io.Writer, traces [][]Step, style report.Style) error {
	var out []byte
	for i, steps := range traces {
		if i > 0 {
			out = append(out, '\n')
		}
		out = appendTrace(out, steps, style)
	}
	_, err := w.Write(out)
	return err
}

func appendTrace(dst []byte, steps []Step, style report.Style) []byte {
	from, to, hops, hosts := int64(0), int64(0), 0, map[string]bool{}
	for i := range steps {
		for _, h := range [...]*Hop{steps[i].Called, steps[i].Served} {
			if h == nil {
				continue
			}
			if hops == 0 || h.Request.StartNS < from {
				from = h.Request.StartNS
			}
			to, hosts[h.Host] = max(to, h.end()), true
			hops++
		}
	}
	id := steps[0].first().Request.Trace.ID
	dst = append(hex.AppendEncode(append(dst, "trace "...), id[:]), '\n')
	dst = fmt.Appendf(dst, "%s, %s on %s, %s from %s\n", count(len(steps), "request"), count(hops, "end"), count(len(hosts), "host"),
		duration(to-from), time.Unix(0, from).Format("2006-01-02 15:04:05.000"))
	for i := range steps {
		dst = appendStep(dst, &steps[i], from, to, len(hosts) > 1, style)
	}
	if len(hosts) > 1 {
		dst = append(dst, "Where a request begins on another host is as far off as the clocks of the two are apart.\n"...)
	}
	return dst
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// appendStep appends a step's line: when it began, how long it took, its bar, who asked
// whom for what; then a line for each end.
func appendStep(dst []byte, s *Step, from, to int64, hosts bool, style report.Style) []byte {
	first, start := s.first(), len(dst)
	dst = fmt.Appendf(dst, "%8s %6s ", "+"+duration(first.Request.StartNS-from), duration(first.Request.TotalNS()))
	dst = appendBar(dst, first.Request.StartNS-from, first.end()-from, to-from)
	indent := strings.Repeat("  ", min(s.Depth, 10))
	dst = append(append(dst, ' '), indent...)
	if s.Called != nil {
		dst = append(appendProcess(dst, s.Called, hosts), " → "...)
	}
	if s.Served != nil {
		dst = appendProcess(dst, s.Served, hosts)
		dst = fmt.Appendf(dst, " :%d", s.Served.Request.Local.Port())
	} else {
		dst = append(dst, first.Request.Peer.String()...)
	}
	if label := first.Request.Label; label != "" {
		dst = append(append(dst, "  "...), printable.Text(label)...)
	}
	if code := first.Request.HTTP; code != 0 {
		dst = strconv.AppendInt(append(dst, ' '), int64(code), 10)
	} else if first.Request.Status == observe.StatusError {
		dst = append(dst, " error"...)
	}
	dst = append(report.WrapLine(dst, start, style), '\n')
	margin := strings.Repeat(" ", 8+1+6+1) + indent
	for _, h := range [...]*Hop{s.Called, s.Served} {
		if h != nil {
			start = len(dst)
			dst = append(append(append(dst, margin...), h.Request.Side.String()...), ':')
			dst = append(report.WrapLine(report.AppendRequestParts(dst, &h.Request.Request, style), start, style), '\n')
		}
	}
	return dst
}

func appendProcess(dst []byte, h *Hop, host bool) []byte {
	p := &h.Request.Process
	switch {
	case p.Workload.Pod != "":
		dst = append(dst, printable.Text(p.Workload.String())...)
	case p.Comm != "":
		dst = fmt.Appendf(dst, "%s[%d]", printable.Text(p.Comm), h.Request.PID)
	default:
		dst = append(dst, '?')
	}
	if host {
		dst = append(append(dst, '@'), printable.Text(h.Host)...)
	}
	return dst
}

// appendBar appends barWidth columns of which those are full that lie between two times
// out of all.
func appendBar(dst []byte, begin, end, all int64) []byte {
	column := func(at int64) int {
		if all <= 0 {
			return 0
		}
		return int(min(max(float64(at)/float64(all), 0), 1) * barWidth)
	}
	first := min(column(begin), barWidth-1)
	last := max(column(end), first+1)
	for i := range barWidth {
		mark := '·'
		if i >= first && i < last {
			mark = '█'
		}
		dst = utf8.AppendRune(dst, mark)
	}
	return dst
}

func duration(ns int64) string { return string(report.AppendDuration(nil, ns)) }
