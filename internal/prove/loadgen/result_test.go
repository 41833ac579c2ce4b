package loadgen

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRead reads outputs: those of wrk, ab, hey and sysbench cpu were made on
// Debian 12 against a server that answers every third request to /bad with 503,
// cuts some of /cut off, and is not there; the others are from documentation.
func TestRead(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	type times = map[float64]time.Duration
	for file, want := range map[string]Result{
		"wrk-plain": {Tool: "wrk", Duration: time.Second, Requests: 50835, Times: times{}},
		"wrk-bad": {Tool: "wrk", Duration: time.Second, Requests: 46498, Bad: 15499,
			Times: times{.5: 60 * us, .75: 139 * us, .9: 890 * us, .99: 3880 * us}},
		"wrk-cut": {Tool: "wrk", Duration: 1010 * ms, Requests: 10847, Unanswered: 222,
			Times: times{.5: 136 * us, .75: 1750 * us, .9: 3780 * us, .99: 18020 * us}},
		"wrk2": {Tool: "wrk2", Duration: time.Minute, Requests: 960001, Bad: 12, Unanswered: 4,
			Times: times{.5: 1230 * us, .75: 1790 * us, .9: 2340 * us, .99: 4870 * us, .999: 12200 * us, .9999: 25 * ms, .99999: 30200 * us, 1: 31900 * us}},
		"ab-bad": {Tool: "ab", Duration: 88 * ms, Requests: 500, Bad: 167,
			Times: times{.5: 0, .66: 0, .75: 0, .8: 0, .9: 2 * ms, .95: 3 * ms, .98: 6 * ms, .99: 8 * ms, 1: 10 * ms}},
		"ab-time": {Tool: "ab", Duration: time.Second, Requests: 75956,
			Times: times{.5: 0, .66: 0, .75: 0, .8: 0, .9: 0, .95: 0, .98: 0, .99: 0, 1: 6 * ms}},
		"hey-bad": {Tool: "hey", Duration: 6200 * us, Requests: 200, Bad: 67,
			Times: times{.1: 0, .25: 100 * us, .5: 100 * us, .75: 100 * us, .9: 200 * us, .95: 300 * us, .99: 700 * us}},
		"hey-cut": {Tool: "hey", Duration: 1003 * ms, Requests: 800,
			Times: times{.1: 0, .25: 100 * us, .5: 100 * us, .75: 100 * us, .9: 200 * us, .95: 300 * us, .99: 400 * us}},
		"hey-refused": {Tool: "hey", Duration: 1000300 * us, Unanswered: 22786, Times: times{}},
		"k6-old": {Tool: "k6", Duration: 41196 * ms, Requests: 180,
			Times: times{.5: 110470 * us, .9: 203540 * us, .95: 215950 * us}},
		"k6-new": {Tool: "k6", Duration: 6859 * ms, Requests: 45, Bad: 5,
			Times: times{.5: 141500 * us, .9: 146880 * us, .99: 149210 * us}},
		"vegeta": {Tool: "vegeta", Duration: 10722 * ms, Requests: 236, Bad: 6, Unanswered: 14,
			Times: times{.5: 124259 * us, .9: 462858 * us, .95: 10001 * ms, .99: 10002 * ms}},
		"oha": {Tool: "oha", Duration: 4472 * ms, Requests: 20000, Bad: 10, Unanswered: 7,
			Times: times{.1: 800 * us, .5: 1100 * us, .99: 1700 * us, .999: 10500 * us}},
		"oha-new": {Tool: "oha", Duration: 1000851 * us, Requests: 22500, Times: times{.5: 389100, .99: 2100100}},
		"sysbench-cpu": {Tool: "sysbench", Duration: 1008300 * us, Requests: 2615,
			Times: times{.95: 310 * us}},
		"sysbench-oltp": {Tool: "sysbench", Duration: 601374300 * us, Requests: 19614, Bad: 2, Unanswered: 1,
			Times: times{.99: 3706080 * us}},
	} {
		got, err := Read(fixture(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if got.Tool == "k6" {
			got.Duration = got.Duration.Round(ms)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"", "hello", fixture(t, "wrk-refused")} {
		if _, err := Read(text); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", text, err)
		}
	}
	broken := strings.Replace(fixture(t, "wrk-plain"), "50835 requests in", "many requests in", 1)
	if _, err := Read(broken); err == nil || err.Error() != `output of wrk: "many" is no number of requests` {
		t.Errorf("broken output: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Read(text)
		if err != nil {
			return
		}
		if r.Good() > r.Requests || r.Duration < 0 {
			t.Errorf("%+v", r)
		}
		for q, d := range r.Times {
			if q < 0 || q > 1 || d < 0 {
				t.Errorf("%v: %v", q, d)
			}
		}
	})
}
