package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// historyRequests is how much of the history is reported when nothing else is asked
// for.
const historyRequests = time.Minute

// runAt writes the requests that the history has of a time.
func (c *requestsCmd) runAt(ctx context.Context, s *streams) error {
	at, err := c.moment()
	if err != nil {
		return err
	}
	history, err := c.open()
	if err != nil {
		return err
	}
	defer history.Close()
	length := historyRequests
	if c.For != nil {
		length = *c.For
	}
	side, _ := sideNamed(c.Side)
	peer, _ := c.peer()
	q := store.Query{From: at, To: at.Add(length), Side: side, MinTotal: value(c.Slow)}
	q.Trace, _ = c.trace()
	if len(c.Port) == 1 {
		q.Port = c.Port[0]
	}
	var ours family
	if c.PID != nil {
		if ours, err = familyAt(history, *c.PID, q.From, q.To); err != nil {
			return fmt.Errorf("requests: %w", err)
		}
	}
	pod, ofPod := c.workload()
	signal.Ignore(syscall.SIGPIPE)
	out := bufio.NewWriterSize(s.out, writeBytes)
	format, style := requestFormats[c.Format], terminalStyle(s.out)
	var line []byte
	if format.header != nil {
		line = format.header(line, style)
	}
	written, stand, labelled := 0, uint64(0), false
	var waterfall *hops
	if q.Trace != "" && c.Format == formatText {
		waterfall, line = &hops{}, nil
	}
	err = history.Requests(q, func(r *store.Request) bool {
		port := r.Local.Port()
		if r.Side == observe.Called {
			port = r.Peer.Port()
		}
		if len(c.Port) > 1 && !slices.Contains(c.Port, int(port)) ||
			ours != nil && !ours[r.PID] || ofPod && !pod.Is(&r.Process.Workload) ||
			peer.IsValid() && !peer.Contains(r.Peer.Addr().Unmap()) {
			return ctx.Err() == nil
		}
		written++
		labelled = labelled || r.Label != ""
		stand += uint64(max(r.Weight, 1))
		if waterfall != nil {
			waterfall.add("", r)
			return ctx.Err() == nil && (c.Limit == nil || written < *c.Limit)
		}
		line = format.line(line, &r.Request, describe(r), &r.PeerWorkload, style)
		if _, err := out.Write(line); err != nil {
			return false
		}
		line = line[:0]
		return ctx.Err() == nil && (c.Limit == nil || written < *c.Limit)
	})
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	if written == 0 {
		if first, last, err := history.Span(); err != nil || first.IsZero() || !first.Before(q.To) || !last.After(q.From) {
			return c.none(history, "there are no requests", q.From, q.To)
		}
	}
	if waterfall != nil {
		if err := waterfall.write(s, q.Trace, 1); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("write requests: %w", err)
	}
	tellSkipped(s, history)
	if c.Labels && written > 0 && !labelled {
		fmt.Fprintln(s.err, "slowray: none of them has a label: slowray record --labels keeps what was asked for")
	}
	fmt.Fprintf(s.err, "slowray: %s requests from %s to %s, which stand for %s: slow and failed ones are kept, and a sample of the others\n",
		figure.Count(written), clockText(q.From), clockText(q.To), figure.Count(stand))
	return nil
}
