package loadgen

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// readK6 reads the summary at the end of k6, old and new. k6 does not tell
// answers with an error from none: both are its failed requests, and count as
// answered. The p99 is only there when --summary-trend-stats asks for it.
func readK6(text string) (Result, error) {
	r := Result{Times: map[float64]time.Duration{}}
	line := k6Line(text, "http_reqs")
	words := strings.Fields(line) // 180 4.36938/s
	if len(words) < 2 {
		return r, fmt.Errorf("no figures of http_reqs in %q", line)
	}
	var err error
	if r.Requests, err = whole(words[0]); err != nil {
		return r, err
	}
	rate, err := number(strings.TrimSuffix(words[1], "/s"))
	if err != nil {
		return r, err
	}
	if rate > 0 {
		r.Duration = time.Duration(float64(r.Requests) / rate * float64(time.Second))
	}
	if r.Bad, err = k6Failed(k6Line(text, "http_req_failed"), r.Requests); err != nil {
		return r, err
	}
	// Of good responses where those are distinguished: the line below.
	times := k6Line(text, "http_req_duration")
	if good := k6Line(text, "{ expected_response:true }"); good != "" {
		times = good
	}
	for item := range strings.FieldsSeq(times) { // avg=144ms med=110.47ms p(95)=215.95ms
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		q, ok := 0.5, name == "med"
		if p, isRank := strings.CutPrefix(name, "p("); isRank {
			q, ok = rank(strings.TrimSuffix(p, ")"))
		}
		if !ok {
			continue
		}
		if r.Times[q], err = span(value); err != nil {
			return r, err
		}
	}
	return r, nil
}

// k6Line is what follows a metric's name and its dots.
func k6Line(text, name string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimLeft(strings.TrimSpace(line), "✓✗ ")
		rest, ok := strings.CutPrefix(line, name)
		if !ok || !strings.HasPrefix(rest, ".") && !strings.HasPrefix(rest, ":") {
			continue
		}
		if _, figures, ok := strings.Cut(rest, ":"); ok {
			return strings.TrimSpace(figures)
		}
	}
	return ""
}

// k6Failed reads "0.00% ✓ 0 ✗ 180", where the first count is that of the failed
// ones, or "0.00% 0 out of 45".
func k6Failed(line string, requests uint64) (uint64, error) {
	if line == "" {
		return 0, nil
	}
	for _, word := range strings.Fields(line)[1:] {
		if n, err := whole(word); err == nil {
			return n, nil
		}
	}
	share, err := number(strings.TrimSuffix(first(line), "%"))
	if err != nil {
		return 0, err
	}
	return uint64(math.Round(share / 100 * float64(requests))), nil
}
