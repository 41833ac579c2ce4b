package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/waterfall"
)

// hops collects the requests of a trace, to write them as a waterfall.
type hops struct {
	list []waterfall.Hop
	more int // that had no room
}

func (h *hops) add(host string, r *store.Request) {
	if len(h.list) >= waterfall.MaxHops {
		h.more++
		return
	}
	hop := waterfall.Hop{Host: strings.Clone(host), Request: *r}
	hop.Request.Label = strings.Clone(r.Label)
	h.list = append(h.list, hop)
}

// write writes the waterfall of what was collected; of nothing, where h is nil. One of so
// many connections was followed.
func (h *hops) write(s *streams, trace observe.TraceMatch, follow uint32) error {
	if h == nil {
		return nil
	}
	if h.more > 0 {
		fmt.Fprintf(s.err, "slowray: %s requests of these traces are left out: no more than %s are put in order\n", figure.Count(h.more), figure.Count(len(h.list)))
	}
	if len(h.list) == 0 && follow > 1 {
		fmt.Fprintf(s.err, "slowray: no request seen carried trace %s, but only 1 of %s connections was followed: --budget 0 follows all\n", trace, figure.Count(follow))
		return nil
	}
	if len(h.list) == 0 {
		fmt.Fprintf(s.err, "slowray: no request that was recorded carried trace %s: services have to pass traceparent on, and HTTP/1.1 under TLS is not read\n", trace)
		return nil
	}
	err := waterfall.Text(s.out, waterfall.Traces(h.list), terminalStyle(s.out))
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("write requests: %w", err)
	}
	return nil
}
