package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/packets"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/sense/tcprt"
	"github.com/slowray/slowray/internal/shell"
)

// captured is what a file with requests came to.
type captured struct {
	end     time.Time
	losses  []observe.Loss
	missing []string
}

// readCapture reads the requests of a file: a capture of packets, or a log of TCPRT.
func (c *requestsCmd) readCapture(each func(*observe.Request)) (*captured, error) {
	if tcprt.Recognises(*c.From) {
		side, _ := sideNamed(c.Side)
		s, err := tcprt.Requests(*c.From, tcprt.Options{Ports: c.Port}, func(r *observe.Request) {
			if side == 0 || r.Side == side {
				each(r)
			}
		})
		if err != nil {
			return nil, err
		}
		return &captured{s.End, s.Losses, s.Missing}, nil
	}
	if c.Side != nil && *c.Side == observe.Called.String() {
		return nil, errors.New("--side called: packets do not tell which end was this host; all requests are those of the end that serves")
	}
	s, err := packets.Requests(*c.From, packets.Options{Ports: c.Port, Labels: c.Labels}, each)
	if err != nil {
		return nil, err
	}
	return &captured{s.End, s.Losses, s.Missing}, nil
}

// runCapture writes the requests that a capture of packets or a log of TCPRT holds.
func (c *requestsCmd) runCapture(s *streams) error {
	peer, _ := c.peer()
	stream := &requestStream{
		out: s.out, format: requestFormats[c.Format], style: terminalStyle(s.out),
		processOf: func(int, int64) (observe.Identity, bool) { return observe.Identity{}, false },
		peer:      peer, slow: value(c.Slow), limit: value(c.Limit),
	}
	signal.Ignore(syscall.SIGPIPE)
	if stream.format.header != nil {
		stream.buf = stream.format.header(stream.buf, stream.style)
	}
	if c.Format == formatTCPRT {
		stream.stats = newPortStats(value(c.StatsEvery), false)
	}
	var from, to time.Time
	summary, err := c.readCapture(func(r *observe.Request) {
		if c.Format == formatText { // by the clock of the capture
			if begin := time.Unix(0, r.StartNS); stream.table == nil {
				stream.table, from = request.NewTable(begin), begin
			}
			if end := time.Unix(0, r.StartNS+r.TotalNS()); end.After(to) {
				to = end
			}
		}
		if stream.stats != nil { // by the clock of the capture
			now := time.Unix(0, r.StartNS+r.TotalNS())
			if stream.stats.next.IsZero() {
				stream.stats.begin(now)
			}
			if stream.stats.due(now) {
				stream.buf = stream.stats.append(stream.buf, now, nil)
			}
		}
		stream.add(r)
	})
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	stream.writePending(summary.end.UnixNano())
	if stream.stats != nil {
		stream.buf = stream.stats.append(stream.buf, summary.end, nil)
	}
	stream.write()
	if err := stream.summary(from, to, shell.Line("slowray replay %s", shell.Path(*c.From))); err != nil {
		return err
	}
	for _, l := range summary.losses {
		fmt.Fprintf(s.err, "slowray: %s %s\n", figure.Count(uint64(l.Count)), l.What)
	}
	for _, what := range summary.missing {
		fmt.Fprintln(s.err, "slowray: not seen: "+what)
	}
	if stream.err != nil && !errors.Is(stream.err, syscall.EPIPE) {
		return stream.err
	}
	return nil
}
