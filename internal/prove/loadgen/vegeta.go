package loadgen

import (
	"fmt"
	"strings"
	"time"
)

// readVegeta reads the text report of vegeta. Status code 0 is that of requests
// without an answer. The duration is that of the attack and of the wait after it.
func readVegeta(text string) (Result, error) {
	r := Result{Times: map[float64]time.Duration{}}
	if _, duration, ok := vegetaLine(text, "Duration"); ok && len(duration) > 0 {
		var err error
		if r.Duration, err = span(duration[0]); err != nil {
			return r, err
		}
	}
	names, times, ok := vegetaLine(text, "Latencies")
	if !ok || len(names) != len(times) {
		return r, fmt.Errorf("no times in it")
	}
	for i, name := range names { // min, mean, 50, 90, 95, 99, max
		if q, ok := rank(name); ok {
			var err error
			if r.Times[q], err = span(times[i]); err != nil {
				return r, err
			}
		}
	}
	_, codes, _ := vegetaLine(text, "Status Codes")
	for _, item := range codes { // 0:14 200:236
		code, number, ok := strings.Cut(item, ":")
		if !ok {
			return r, fmt.Errorf("%q is no status code with its count", item)
		}
		n, err := whole(number)
		if err != nil {
			return r, err
		}
		switch {
		case code == "0":
			r.Unanswered += n
			continue
		case !strings.HasPrefix(code, "2") && !strings.HasPrefix(code, "3"):
			r.Bad += n
		}
		r.Requests += n
	}
	return r, nil
}

// vegetaLine takes "Name [a, b] 1, 2" apart.
func vegetaLine(text, name string) (names, values []string, ok bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok {
			continue
		}
		_, rest, ok = strings.Cut(rest, "[")
		if !ok {
			continue
		}
		inside, rest, ok := strings.Cut(rest, "]")
		if !ok {
			continue
		}
		split := func(c rune) bool { return c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t' }
		return strings.FieldsFunc(inside, split), strings.FieldsFunc(rest, split), true
	}
	return nil, nil, false
}
