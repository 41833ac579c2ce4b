package function

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// kernels are the ways to attach, as on kernels of several ages.
func kernels(t *testing.T) map[string]kernel {
	t.Helper()
	full := probeKernel()
	if testing.Short() {
		return map[string]kernel{"this one": full}
	}
	out := map[string]kernel{"5.10": {}}
	if full.cookies {
		out["5.15"] = kernel{cookies: true}
	}
	if full.multi {
		out["6.6"] = full
	}
	return out
}

// TestPlantedCalls: numbers are exact and durations as planted, whatever the
// kernel can do, by return probes and by return instructions.
func TestPlantedCalls(t *testing.T) {
	for name, k := range kernels(t) {
		for _, returns := range []bool{true, false} {
			t.Run(name+"/"+map[bool]string{true: "probes", false: "instructions"}[returns], func(t *testing.T) {
				p := startC(t)
				opt := Options{
					Target: strconv.Itoa(p.pid()), Symbols: []string{"nap", "recurse", "jump", "tail", "tail_target", "burn", "hang", "allocate"},
					Args: []Arg{{Number: 1, Type: "str"}, {Number: 2, Type: "i32"}}, Errors: "negative",
				}
				plan, err := Prepare(context.Background(), opt)
				if err != nil {
					t.Fatal(err)
				}
				if plan.unsafe {
					t.Error("a C program without an unwinder is said to walk its stack")
				}
				plan.Close()
				forceInstructions = !returns
				defer func() { forceInstructions = false }()
				checkPlanted(t, k, p, opt, returns)
			})
		}
	}
}

func checkPlanted(t *testing.T, k kernel, p *program, opt Options, byProbes bool) {
	took := map[string][]int64{}
	o := watch(t, k, opt, func() {
		for _, c := range []string{"nap", "recurse", "jump", "tail", "burn", "threads", "hang", "allocate"} {
			took[c] = p.numbers(p.tell(c))
		}
	})
	if o.Stopped != interrupted || len(o.Notes) != 0 {
		t.Errorf("stopped %q, notes %q", o.Stopped, o.Notes)
	}
	nap := of(t, o, "nap")
	if nap.Calls != 60 || nap.Returned != 60 || nap.Failed != 2 || nap.Left+nap.Early+nap.Untimed != 0 || nap.Running != 0 {
		t.Errorf("nap: %+v, want 60 calls that all return, 2 of them with an error", nap)
	}
	main := slices.IndexFunc(nap.Threads, func(th observe.FunctionThread) bool { return th.TID == p.pid() })
	if main < 0 || nap.Threads[main].Calls != 20 {
		t.Fatalf("nap: threads %+v, want 20 calls of the main thread", nap.Threads)
	}
	var sum, most [2]int64 // from inside and as the caller sees it
	var naps [2][]int64    // of all threads, the longest last
	for i := range sum {
		for n := i; n < len(took["nap"]); n += 2 {
			naps[i], sum[i], most[i] = append(naps[i], took["nap"][n]), sum[i]+took["nap"][n], max(most[i], took["nap"][n])
		}
		for n := i; n < len(took["threads"]); n += 2 {
			naps[i] = append(naps[i], took["threads"][n])
		}
		slices.Sort(naps[i])
	}
	p.within("nap, in all", nap.Threads[main].TotalNS, 18*10*time.Millisecond+2*50*time.Millisecond, sum[0], sum[1])
	p.within("nap, longest", nap.Threads[main].MaxNS, 50*time.Millisecond, most[0], most[1])
	const width = 32 // of the buckets of a histogram
	p.within("nap, median", nap.Latency.Quantile(0.5), 9800*time.Microsecond, naps[0][30]-naps[0][30]/width, naps[1][30]+naps[1][30]/width)
	if nap.Latency.Count() != 60 {
		t.Errorf("nap: %d durations, want 60", nap.Latency.Count())
	}
	if len(nap.Threads) != 5 {
		t.Errorf("nap: %d threads, want 5", len(nap.Threads))
	}
	// Any nap may take longer than asked for where the machine is full, so what is kept is
	// held to the argument it came with, and to what the program knows of its longest.
	if len(nap.Slowest) != 3 {
		t.Fatalf("nap, slowest: %+v, want 3", nap.Slowest)
	}
	for i, c := range nap.Slowest {
		planted := map[string]time.Duration{"2 = 50": 50 * time.Millisecond, "2 = 10": 10 * time.Millisecond}[c.Args[1]]
		if planted == 0 || c.Result == nil || (int32(*c.Result) == -1) != (planted > 40*time.Millisecond) {
			t.Errorf("nap, slowest: %d: %+v, want -1 for the argument 50", i, c)
		}
		p.within("nap, slowest", c.DurationNS, planted, naps[0][59-i], naps[1][59-i])
		if c.TID != p.pid() {
			continue
		}
		if c.Args[0] != `1 = "even"` && c.Args[0] != `1 = "odd\x1b[31m\xff"` {
			t.Errorf("nap, slowest: %q is not the text that was given, in printable form", c.Args[0])
		}
		if len(c.Stack) == 0 || !slices.ContainsFunc([]string{"nap", "timed_nap", "obey", "main"}, func(s string) bool { return c.Stack[0].Name == s }) {
			t.Errorf("nap, slowest: the stack is %+v", c.Stack)
		}
	}
	if r := of(t, o, "recurse"); r.Calls != 62 || r.Returned != 21+32 || r.Early != 0 || r.Left != 0 || lost(o, "within each other") != 9 {
		t.Errorf("recurse: %d calls, %d returned, %d early, %d left, %d too deep; want 62, 53, 0, 0, 9", r.Calls, r.Returned, r.Early, r.Left, lost(o, "within each other"))
	}
	if j := of(t, o, "jump"); j.Calls != 10 || j.Returned != 5 || j.Left+uint64(j.Running) != 5 || j.Running > 1 {
		t.Errorf("jump: %+v, want 10 calls of which 5 return", j)
	}
	tail, target := of(t, o, "tail"), of(t, o, "tail_target")
	if tail.Calls != 5 || tail.Returned != 5 || target.Calls != 5 || target.Returned != 5 || tail.Left+target.Left != 0 {
		t.Errorf("tail: %+v\n%+v, want 5 calls each that return", tail, target)
	}
	p.within("tail_target", target.TotalNS, 25*time.Millisecond, took["tail"][0], took["tail"][1])
	if byProbes {
		// It returns in its place, so to its caller both take as long.
		p.within("tail", tail.TotalNS, 25*time.Millisecond, took["tail"][0], took["tail"][1])
	}
	burn := of(t, o, "burn")
	// Within a tick of the scheduler for each.
	if used := took["burn"][0]; burn.Calls != 4 || used < 1e8 || max(burn.CPUNS-used, used-burn.CPUNS) > int64(20*time.Millisecond) {
		t.Errorf("burn: %d calls, %s on the CPU; want 4, %s", burn.Calls, time.Duration(burn.CPUNS), time.Duration(used))
	}
	if nap.CPUNS > nap.TotalNS/5 {
		t.Errorf("nap: %s of %s on the CPU", time.Duration(nap.CPUNS), time.Duration(nap.TotalNS))
	}
	hang := of(t, o, "hang")
	if hang.Calls != 1 || hang.Running != 1 || len(hang.Unfinished) != 1 || hang.Unfinished[0].DurationNS < int64(20*time.Millisecond) {
		t.Errorf("hang: %+v, want one call that is still running", hang)
	}
	if o.Price.PerHitNS < 50 || o.Price.PerHitNS > 100_000 || o.Price.Hits < 300 {
		t.Errorf("price: %+v", o.Price)
	}
}

// TestErrors: what is asked to be an error is counted as one.
func TestErrors(t *testing.T) {
	p := startC(t)
	o := watch(t, probeKernel(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"allocate"}, Errors: "null"}, func() { p.tell("allocate") })
	if f := of(t, o, "allocate"); f.Calls != 6 || f.Failed != 2 {
		t.Errorf("%+v, want 6 calls of which 2 give NULL", f)
	}
}

// TestCountOnly: half the hits, the same number.
func TestCountOnly(t *testing.T) {
	p := startC(t)
	o := watch(t, probeKernel(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"hot"}, CountOnly: true}, func() { p.tell("hot 5000") })
	if f := of(t, o, "hot"); f.Calls != 5000 || f.Timed || o.Price.Hits != 5000 {
		t.Errorf("%+v, %d hits; want 5000 calls and hits", f, o.Price.Hits)
	}
}

// TestManyCalls: the numbers are exact also where most calls leave a record
// until it is known which are slow.
func TestManyCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	p := startC(t)
	o := watch(t, probeKernel(), Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"hot"}}, func() {
		for range 5 {
			p.tell("hot 10000")
		}
	})
	f := of(t, o, "hot")
	if f.Calls != 50000 || f.Returned != 50000 || f.Latency.Count() != 50000 || o.Price.Hits != 100000 {
		t.Errorf("%d calls, %d returned, %d durations, %d hits; want 50000 and twice as many hits", f.Calls, f.Returned, f.Latency.Count(), o.Price.Hits)
	}
	if len(f.Slowest) != 3 || f.Slowest[0].DurationNS != f.MaxNS && lost(o, "among the slowest") == 0 {
		t.Errorf("the slowest of %+v takes %d, the longest %d", f.Slowest, f.Slowest[0].DurationNS, f.MaxNS)
	}
}

// TestStaticProbes: a begin and an end are one, arguments are where the note
// says, and the program's own counter says that somebody watches.
func TestStaticProbes(t *testing.T) {
	for name, k := range kernels(t) {
		t.Run(name, func(t *testing.T) {
			p := startC(t)
			if before := p.tell("semaphore"); before[0] != "semaphore 0" {
				t.Fatalf("%q before", before)
			}
			var meanwhile []string
			var took []int64
			o := watch(t, k, Options{Target: strconv.Itoa(p.pid()), Symbols: []string{"usdt:planted:*"}, Args: []Arg{{Number: 1, Type: "int"}}, Top: 8}, func() {
				meanwhile = p.tell("semaphore")
				took = p.numbers(p.tell("probe"))
			})
			if meanwhile[0] == "semaphore 0" {
				t.Errorf("%q while it is watched", meanwhile)
			}
			if after := p.tell("semaphore"); after[0] != "semaphore 0" {
				t.Errorf("%q afterwards", after)
			}
			work := of(t, o, "planted:work")
			if work.Calls != 8 || work.Returned != 8 {
				t.Errorf("work: %+v, want 8 calls", work)
			}
			p.within("work", work.TotalNS, 80*time.Millisecond, took[0], took[1])
			if !slices.ContainsFunc(work.Slowest[0].Args, func(s string) bool { return strings.HasPrefix(s, "1 = ") }) {
				t.Errorf("work: arguments %q", work.Slowest[0].Args)
			}
			alone := of(t, o, "planted:alone")
			if alone.Calls != 8 || alone.Timed || len(alone.Slowest) != 8 || alone.Slowest[7].Args[0] != "1 = -7" {
				t.Errorf("alone: %+v, want 8 hits, the last with -7", alone)
			}
		})
	}
}

// TestGoProgram: goroutines that change threads, stacks that move, panics.
func TestGoProgram(t *testing.T) {
	for name, k := range kernels(t) {
		t.Run(name, func(t *testing.T) {
			build(t)
			p := startProgram(t, planted.gol)
			o := watch(t, k, Options{
				Target: strconv.Itoa(p.pid()), Symbols: []string{"main.handle", "main.grow", "main.panics", "main.guarded", "main.(*worker).step"},
				Args: []Arg{{Number: 1, Type: "gostr"}},
			}, func() { p.tell("go") })
			if len(o.Losses) > 0 {
				t.Errorf("losses %+v", o.Losses)
			}
			handle := of(t, o, "main.handle")
			if handle.Calls != 200 || handle.Returned != 200 || handle.Left+handle.Early != 0 || handle.Running != 0 {
				t.Errorf("handle: %+v, want 200 calls that return", handle)
			}
			if q := handle.Latency.Quantile(0.1); q < int64(19500*time.Microsecond) || q > int64(60*time.Millisecond) {
				t.Errorf("handle takes %s, planted 20ms", time.Duration(q))
			}
			if !strings.HasPrefix(handle.Slowest[0].Args[0], `1 = "request-`) {
				t.Errorf("handle: arguments %q", handle.Slowest[0].Args)
			}
			if grow := of(t, o, "main.grow"); grow.Calls != 200*21 || grow.Returned != 200*21 {
				t.Errorf("grow: %d calls, %d returned; want %d", grow.Calls, grow.Returned, 200*21)
			}
			if f := of(t, o, "main.panics"); f.Calls != 10 || f.Returned != 5 || f.Left+uint64(f.Running) != 5 {
				t.Errorf("panics: %+v, want 10 calls of which 5 return", f)
			}
			if f := of(t, o, "main.guarded"); f.Calls != 10 || f.Returned != 10 {
				t.Errorf("guarded: %+v, want 10 calls that return", f)
			}
			if f := of(t, o, "main.(*worker).step"); f.Calls != 30 || f.Returned != 30 {
				t.Errorf("step: %+v, want 30 calls that return", f)
			}
		})
	}
}
