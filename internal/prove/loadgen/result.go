package loadgen

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Result is what the output of a load generator says.
type Result struct {
	Tool     string        // "wrk", "wrk2", "hey", "ab", "k6", "vegeta", "oha", "sysbench"
	Duration time.Duration // of the load

	Requests   uint64 // answered, whatever the answer
	Bad        uint64 // of these, answered with an error
	Unanswered uint64 // refused, cut off or timed out; nobody answered them

	// Times are quantiles of the request latency, by their rank, 0 to 1.
	// Generators differ in which they print and in whether failed requests count.
	Times map[float64]time.Duration
}

// Good is how many requests were answered well.
func (r *Result) Good() uint64 { return r.Requests - min(r.Bad, r.Requests) }

// ErrUnknown is that an output is of no generator that is known, or cut off.
var ErrUnknown = errors.New("not the output of a known load generator")

// reader reads the output of one generator.
type reader struct {
	tool  string
	marks []string // all of them are in its output
	read  func(text string) (Result, error)
}

// readers, the more special ones first.
var readers = []reader{
	{"wrk2", []string{"requests in ", "HdrHistogram", "Requests/sec:"}, readWrk},
	{"wrk", []string{"requests in ", "Requests/sec:"}, readWrk},
	{"ab", []string{"Complete requests:", "Time taken for tests:"}, readAB},
	{"oha", []string{"Success rate:", "Requests/sec:"}, readOha},
	{"hey", []string{"Summary:", "Requests/sec:", "Fastest:"}, readHey},
	{"k6", []string{"http_reqs", "http_req_duration"}, readK6},
	{"vegeta", []string{"Requests", "Latencies", "Success", "Status Codes"}, readVegeta},
	{"sysbench", []string{"sysbench", "total number of events:"}, readSysbench},
}

// Read understands the output of a load generator. The error is ErrUnknown, or
// says what is missing in the output.
func Read(output string) (Result, error) {
	for _, r := range readers {
		if !all(output, r.marks) {
			continue
		}
		result, err := r.read(output)
		if err != nil {
			return Result{}, fmt.Errorf("output of %s: %w", r.tool, err)
		}
		result.Tool = r.tool
		return result, nil
	}
	return Result{}, ErrUnknown
}

func all(text string, marks []string) bool {
	for _, m := range marks {
		if !strings.Contains(text, m) {
			return false
		}
	}
	return true
}
