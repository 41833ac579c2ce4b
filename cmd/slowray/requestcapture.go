package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/sense/packets"
)

// runCapture writes the requests that a capture of packets holds.
func (c *requestsCmd) runCapture(s *streams) error {
	peer, _ := c.peer()
	stream := &requestStream{
		out: s.out, format: requestFormats[c.Format], style: terminalStyle(s.out),
		processOf: func(int, int64) (report.Process, bool) { return report.Process{}, false },
		peer:      peer, slow: value(c.Slow), limit: value(c.Limit),
	}
	signal.Ignore(syscall.SIGPIPE)
	if stream.format.header != nil {
		stream.buf = stream.format.header(stream.buf, stream.style)
	}
	if c.Format == formatTCPRT {
		stream.stats = newPortStats(value(c.StatsEvery), nil, false)
	}
	summary, err := packets.Requests(*c.From, packets.Options{Ports: c.Port, Labels: c.Labels}, func(r *observe.Request) {
		if stream.stats != nil { // by the clock of the capture
			now := time.Unix(0, r.StartNS+r.TotalNS())
			if stream.stats.next.IsZero() {
				stream.stats.begin(now)
			}
			stream.buf = stream.stats.appendDue(stream.buf, now)
		}
		stream.add(r)
	})
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	stream.writePending(summary.End.UnixNano())
	if stream.stats != nil {
		stream.buf = stream.stats.append(stream.buf, summary.End)
	}
	stream.write()
	for _, l := range summary.Losses {
		fmt.Fprintf(s.err, "slowray: %s %s\n", figure.Count(uint64(l.Count)), l.What)
	}
	for _, what := range summary.Missing {
		fmt.Fprintln(s.err, "slowray: not seen: "+what)
	}
	if stream.err != nil && !errors.Is(stream.err, syscall.EPIPE) {
		return stream.err
	}
	return nil
}
