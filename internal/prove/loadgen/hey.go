package loadgen

import (
	"fmt"
	"strings"
	"time"
)

// readHey reads the output of hey; requests without an answer are in its error
// distribution.
func readHey(text string) (Result, error) { return readSummary(text, "Latency distribution:") }

// readOha reads the text output of oha (--no-tui), which is like that of hey but
// for its headings and two decimals of percentages.
func readOha(text string) (Result, error) {
	return readSummary(text, "Response time distribution:")
}

func readSummary(text, times string) (Result, error) {
	r := Result{Times: map[float64]time.Duration{}}
	line, _ := after(text, "Total:")
	var err error
	if r.Duration, err = summaryTime(line); err != nil {
		return r, err
	}
	for line := range section(text, times) {
		words := strings.Fields(line) // 99% in 0.0420 secs, 99.00% in 4.2 ms
		if len(words) < 4 || !strings.HasSuffix(words[0], "%") || words[1] != "in" {
			continue
		}
		q, ok := rank(strings.TrimSuffix(words[0], "%"))
		if !ok {
			return r, fmt.Errorf("%q is no percentage", words[0])
		}
		if r.Times[q], err = summaryTime(strings.Join(words[2:], " ")); err != nil {
			return r, err
		}
	}
	for line := range section(text, "Status code distribution:") {
		code, rest, ok := bracket(line) // [200] 20000 responses
		if !ok {
			continue
		}
		n, err := whole(first(rest))
		if err != nil {
			return r, err
		}
		r.Requests += n
		if len(code) != 3 || code[0] != '2' && code[0] != '3' {
			r.Bad += n
		}
	}
	for line := range section(text, "Error distribution:") {
		number, rest, ok := bracket(line) // [22] Get "http://…": connection refused
		if !ok || strings.Contains(rest, "aborted due to deadline") {
			continue // oha cuts off what is under way at its end
		}
		n, err := whole(number)
		if err != nil {
			return r, err
		}
		r.Unanswered += n
	}
	return r, nil
}

// summaryTime reads "1.0088 secs", "10.5 ms" or "1.2 sec".
func summaryTime(text string) (time.Duration, error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return 0, fmt.Errorf("%q is no time", text)
	}
	if strings.HasPrefix(words[1], "sec") {
		return in(words[0], time.Second)
	}
	return span(words[0] + words[1])
}

// section yields the lines below a heading, to the next empty line but one right
// below it.
func section(text, heading string) func(func(string) bool) {
	return func(yield func(string) bool) {
		_, rest, ok := strings.Cut(text, heading)
		if !ok {
			return
		}
		for n, line := range strings.Split(rest, "\n") {
			line = strings.TrimSpace(line)
			if line == "" && n > 0 || line != "" && !yield(line) {
				return
			}
		}
	}
}

// bracket takes "[what] rest" apart.
func bracket(line string) (what, rest string, ok bool) {
	line, ok = strings.CutPrefix(line, "[")
	if !ok {
		return "", "", false
	}
	return strings.Cut(line, "]")
}
