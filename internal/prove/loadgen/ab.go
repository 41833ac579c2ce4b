package loadgen

import (
	"fmt"
	"strings"
	"time"
)

// readAB reads the output of ApacheBench. Of its failed requests those of another
// length than the first answer are no failures; the others were not answered.
func readAB(text string) (Result, error) {
	r := Result{Times: map[float64]time.Duration{}}
	var err error
	line, _ := after(text, "Time taken for tests:")
	if r.Duration, err = in(first(line), time.Second); err != nil {
		return r, err
	}
	if r.Requests, err = count(text, "Complete requests:"); err != nil {
		return r, err
	}
	if r.Bad, err = count(text, "Non-2xx responses:"); err != nil {
		return r, err
	}
	for _, kind := range []string{"(Connect: ", "Receive: ", "Exceptions: "} {
		line, ok := after(text, kind)
		if !ok {
			continue
		}
		n, err := whole(strings.TrimRight(first(line), ")"))
		if err != nil {
			return r, err
		}
		r.Unanswered += n
	}
	// It counts those as complete too.
	r.Requests -= min(r.Unanswered, r.Requests)
	_, table, _ := strings.Cut(text, "Percentage of the requests served within a certain time (ms)")
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) < 2 || !strings.HasSuffix(words[0], "%") {
			continue
		}
		q, ok := rank(strings.TrimSuffix(words[0], "%"))
		if !ok {
			return r, fmt.Errorf("%q is no percentage", words[0])
		}
		if r.Times[q], err = in(words[1], time.Millisecond); err != nil {
			return r, err
		}
	}
	return r, nil
}
