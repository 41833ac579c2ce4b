package loadgen

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// readWrk reads the output of wrk 4 and of wrk2, which differ in the ranks that
// they print. "Socket errors" are requests that were not answered; wrk counts
// what took longer than its --timeout as one although the answer is awaited on.
func readWrk(text string) (Result, error) {
	r := Result{Times: map[float64]time.Duration{}}
	line, rest, _ := strings.Cut(text, " requests in ")
	words := strings.Fields(line)
	if len(words) == 0 {
		return r, errors.New("no number of requests")
	}
	var err error
	if r.Requests, err = whole(words[len(words)-1]); err != nil {
		return r, err
	}
	if r.Duration, err = span(first(rest)); err != nil {
		return r, err
	}
	if r.Bad, err = count(text, "Non-2xx or 3xx responses:"); err != nil {
		return r, err
	}
	if line, ok := after(text, "Socket errors:"); ok {
		for item := range strings.SplitSeq(line, ",") {
			words := strings.Fields(item)
			if len(words) != 2 {
				return r, fmt.Errorf("%q are no socket errors", line)
			}
			n, err := whole(words[1])
			if err != nil {
				return r, err
			}
			r.Unanswered += n
		}
	}
	// The detailed spectrum of wrk2 has no percent signs.
	_, table, _ := strings.Cut(text, "Latency Distribution")
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) != 2 || !strings.HasSuffix(words[0], "%") {
			continue
		}
		if q, ok := rank(strings.TrimSuffix(words[0], "%")); ok {
			if r.Times[q], err = span(words[1]); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}
