package loadgen

import (
	"strings"
	"time"
)

// readSysbench reads the output of sysbench 1.0: its events (transactions of a
// database) are the requests. Ignored errors are those that its script goes on
// after, lost connections are requests without an answer. It prints one quantile,
// the 95th unless --percentile says otherwise.
func readSysbench(text string) (Result, error) {
	r := Result{Times: map[float64]time.Duration{}}
	var err error
	if r.Requests, err = count(text, "total number of events:"); err != nil {
		return r, err
	}
	if line, ok := after(text, "total time:"); ok {
		if r.Duration, err = span(first(line)); err != nil {
			return r, err
		}
	}
	if r.Bad, err = count(text, "ignored errors:"); err != nil {
		return r, err
	}
	r.Requests += r.Bad // events are those that went well
	if r.Unanswered, err = count(text, "reconnects:"); err != nil {
		return r, err
	}
	for line := range strings.Lines(text) { // 95th percentile:   0.31
		name, value, ok := strings.Cut(strings.TrimSpace(line), " percentile:")
		if !ok {
			continue
		}
		if q, ok := rank(strings.TrimRight(name, "stndrh")); ok {
			if r.Times[q], err = in(strings.TrimSpace(value), time.Millisecond); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}
