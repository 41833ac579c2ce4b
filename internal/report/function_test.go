package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/observe"
)

const hostileText = "a\x1b[31mb\u202ec\u009bd\n\xff"

func functions() *observe.Functions {
	var h observe.Histogram
	for _, ns := range []int64{2_000_000, 2_100_000, 2_200_000, 40_000_000} {
		h.Add(ns)
	}
	failed := int64(0xffffffff)
	return &observe.Functions{
		Target: "4711", Process: &observe.WaitProcess{PID: 4711, Comm: "server"}, StartNS: 1_700_000_000_000_000_000, WindowNS: 2_000_000_000,
		Calls: []observe.Function{
			{
				Name: "handle(int)", Module: "/usr/bin/server", Kind: observe.FunctionNative, Timed: true, Calls: 5, Returned: 4, TotalNS: 46_300_000, CPUNS: 6_300_000,
				MaxNS: 40_000_000, Latency: h, Failed: 1, Errors: "negative", Running: 1,
				Unfinished: []observe.FunctionCall{{DurationNS: 1_500_000_000, PID: 4711, TID: 4713, Comm: "worker"}},
				Left:       2, Early: 1,
				Slowest: []observe.FunctionCall{{StartNS: 1_700_000_000_500_000_000, DurationNS: 40_000_000, PID: 4711, TID: 4712, Comm: "worker",
					Args: []string{`1 = "/slow"`}, Result: &failed, Stack: []observe.Frame{{Name: "serve", Kind: observe.FrameNative}, {Name: "main", Kind: observe.FrameNative}}}},
				Threads: []observe.FunctionThread{{PID: 4711, TID: 4712, Comm: "worker", Calls: 5, TotalNS: 46_300_000, MaxNS: 40_000_000}},
				Share:   &observe.FunctionShare{Requests: 3, Touched: 2, TimeNS: 100_000_000, InsideNS: 40_000_000},
			},
			{Name: "sched:sched_switch", Kind: observe.FunctionTracepoint, CPUNS: -1},
		},
		Price:   observe.FunctionPrice{Hits: 9, PerHitNS: 1500},
		Stopped: "asked to", Losses: []observe.Loss{{What: "calls that may be missing", Count: 7}}, Notes: []string{"not read: a file"},
	}
}

// TestFunctionsText: everything that matters is there.
func TestFunctionsText(t *testing.T) {
	var b bytes.Buffer
	if err := Functions(&b, functions(), Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"server (pid 4711): 2 functions watched for 2 s",
		"Ended early: asked to",
		"handle(int) in /usr/bin/server",
		"5, 2.5 a second; failed: 1 (25 %)",
		"2.1", "at most 40 ms; 46.3 ms in all",
		"6.3 ms of it (14 %); the rest it waited",
		"1 had not returned at the end, the longest for 1.5 s (worker, thread 4713)",
		"2 without a return that was seen",
		"1 more returned that had begun before",
		"40 % of the time of the 3 slowest requests was spent inside (40 ms of 100 ms, in 2 of them)",
		`worker 4712: 1 = "/slow" → -1`,
		"serve ← main",
		"1 was not called",
		"Price: 9 hits, about 1.5 µs each: under 0.1 % of one CPU",
		"Note: not read: a file",
		"Left out: calls that may be missing: 7",
	} {
		if !strings.Contains(b.String(), want) && !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// TestHostileFunctions: nothing that comes from the host drives a terminal,
// neither in text nor in JSON, and JSON keeps to its schema.
func TestHostileFunctions(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../schema/function.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	hostile := functions()
	hostile.Target, hostile.Process.Comm, hostile.Stopped = hostileText, hostileText, hostileText
	hostile.Notes[0], hostile.Losses[0].What = hostileText, hostileText
	f := &hostile.Calls[0]
	f.Name, f.Module, f.Note, f.Unfinished[0].Comm, f.Threads[0].Comm = hostileText, hostileText, hostileText, hostileText, hostileText
	f.Slowest[0].Comm, f.Slowest[0].Args[0], f.Slowest[0].Stack[0].Name = hostileText, hostileText, hostileText
	f.Slowest[0].Kernel = []observe.Frame{{Name: hostileText, Kind: observe.FrameKernel}}
	for _, o := range []*observe.Functions{functions(), hostile, {}} {
		o.WindowNS = max(o.WindowNS, 1)
		var text, out bytes.Buffer
		if err := Functions(&text, o, Style{Width: 60}); err != nil {
			t.Fatal(err)
		}
		if err := FunctionsJSON(&out, o); err != nil {
			t.Fatal(err)
		}
		for _, c := range text.String() + out.String() {
			if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
				t.Fatalf("control character %U in\n%q\n%q", c, text.String(), out.String())
			}
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}
