package store

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// outage fills a directory with two minutes of a shop. In the first, two requests
// in a thousand are slow; in the second, thirty. The shop calls a database that is
// always slow, and stored fully: whoever mixes the sides, or takes rows for
// requests, gets other figures.
func outage(t *testing.T, dir string, from time.Time) {
	t.Helper()
	c := &clock{t: from}
	s := openAt(t, dir, Options{}, c)
	add := func(side observe.Side, at time.Time, total time.Duration, why Why, weight uint32) {
		r := Request{Process: observe.Identity{Comm: "shop"}, Why: why}
		r.Side, r.StartNS, r.Weight, r.Requests, r.Seq = side, at.UnixNano(), weight, 1, 1
		r.Local, r.Peer = netip.MustParseAddrPort("192.0.2.10:443"), netip.MustParseAddrPort("203.0.113.9:41000")
		if side == observe.Called {
			r.Local, r.Peer = netip.MustParseAddrPort("192.0.2.10:40123"), netip.MustParseAddrPort("198.51.100.7:3306")
		}
		r.Ledger[observe.Server], r.Ledger[observe.Network] = int64(total)*3/4, int64(total)/4
		if side == observe.Called {
			r.Ledger[observe.Server], r.Ledger[observe.Network] = int64(total), 0
		}
		s.AddRequest(&r)
		end := r.Local
		if side == observe.Called {
			end = r.Peer
		}
		sec := Second{At: at.Unix(), Process: r.Process}
		e := &sec.Endpoint
		e.Side, e.Addr, e.Port, e.Comm = side.String(), end.Addr().String(), int(end.Port()), "shop"
		e.Requests, e.OK, e.Recorded = uint64(weight), uint64(weight), uint64(weight)
		e.Total.AddN(int64(total), uint64(weight))
		e.Parts = map[string]observe.PartStats{}
		for p, ns := range r.Ledger {
			if ns > 0 {
				part := observe.PartStats{SumNS: ns * int64(weight)}
				part.Hist.AddN(ns, uint64(weight))
				e.Parts[observe.Part(p).String()] = part
			}
		}
		s.AddSecond(&sec)
	}
	for minute, slow := range []int{2, 30} {
		at := from.Add(time.Duration(minute) * time.Minute)
		c.set(at)
		for i := range 100 {
			add(observe.Served, at.Add(time.Duration(i)*500*time.Millisecond), 2*time.Millisecond+time.Duration(i)*40*time.Microsecond, Sampled, 10)
			for range 5 {
				add(observe.Called, at.Add(time.Duration(i)*500*time.Millisecond), 60*time.Millisecond, Slow, 1)
			}
		}
		for i := range slow {
			add(observe.Served, at.Add(time.Duration(i)*time.Second), time.Duration(500+1000*minute)*time.Millisecond, Slow, 1)
		}
		o := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: at, Seconds: 60}}
		f := cause.Finding{Cause: "lock-convoy", Role: cause.RoleCause, Verdict: cause.Supported, Impact: cause.Impact{Share: 0.5 + 0.25*float64(minute)}}
		g, h := f, f
		g.Subject.PID = 7 // of two processes in one window
		h.Cause, h.Role = "slow-dependency", cause.RoleConsequence
		must(t, s.AddObservation(o, []cause.Finding{f, g, h}))
		must(t, s.Sync())
	}
	c.set(from.Add(9 * time.Minute))
	must(t, s.Sync())
	must(t, s.Close())
}

// runDocs runs blocks of docs/history-queries.md in the directory and prints the rows of
// each, or what it printed, as JSON.
const runDocs = `
import contextlib, io, json, os, sys
blocks = json.load(sys.stdin)
os.chdir(sys.argv[1])
out = []
for kind, text in blocks:
    if kind == 'duckdb':
        import duckdb
        out.append(json.loads(json.dumps(duckdb.sql(text).fetchall(), default=lambda x: float(x) if type(x).__name__ == 'Decimal' else str(x))))
    elif kind == 'clickhouse':
        import chdb
        out.append([json.loads(line) for line in str(chdb.query(text, 'JSONCompactEachRow')).splitlines()])
    else:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(text, {})
        out.append([printed.getvalue()])
print(json.dumps(out))
`

// Every query of docs/history-queries.md tells what it says it tells.
func TestQueriesOfDocs(t *testing.T) {
	python, err := filepath.Abs("../../.venv/bin/python")
	must(t, err)
	has := func(module string) bool {
		return exec.Command(python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('"+module+"'))").Run() == nil
	}
	var blocks [][2]string // of programs that are there
	var names []string     // the sentence before each
	text, err := os.ReadFile("../../docs/history-queries.md")
	must(t, err)
	parts := strings.Split(string(text), "```")
	if len(parts) < 10 {
		t.Fatal("docs/history-queries.md has no queries")
	}
	missing := map[string]bool{}
	for i := 1; i+1 < len(parts); i += 2 {
		language, block, _ := strings.Cut(parts[i], "\n")
		program := map[string]string{"python": "pandas", "sql": "duckdb"}[language]
		if strings.Contains(block, "file('") {
			program = "clickhouse"
		}
		module := map[string]string{"pandas": "pandas", "duckdb": "duckdb", "clickhouse": "chdb"}[program]
		if module == "" {
			t.Fatalf("a block of %q: what runs it?", language)
		}
		if !has(module) {
			missing[module] = true
			continue
		}
		before := strings.Split(strings.TrimSpace(parts[i-1]), "\n\n")
		blocks, names = append(blocks, [2]string{program, block}), append(names, before[len(before)-1])
	}
	for module := range missing {
		t.Logf("SKIP: no %s in .venv (script/setup.sh test installs it)", module)
	}
	if len(blocks) == 0 {
		t.Skip("SKIP: nothing that reads Parquet in .venv (script/setup.sh test installs it)")
	}

	dir := t.TempDir()
	from := time.Now().UTC().Add(-20 * time.Minute).Truncate(5 * time.Minute)
	outage(t, dir, from)
	cmd := exec.Command(python, "-c", runDocs, dir)
	input, err := json.Marshal(blocks)
	must(t, err)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(input)), os.Stderr
	output, err := cmd.Output()
	must(t, err)
	var got [][]any
	must(t, json.Unmarshal(output, &got))

	number := func(v any) float64 {
		switch v := v.(type) {
		case float64:
			return v
		case string:
			var f float64
			fmt.Sscan(v, &f)
			return f
		}
		return math.NaN()
	}
	like := func(what string, row any, want ...any) {
		t.Helper()
		cells, _ := row.([]any)
		if len(cells) != len(want) {
			t.Errorf("%s: row %v, want %v", what, row, want)
			return
		}
		for i, w := range want {
			switch w := w.(type) {
			case string:
				if cells[i] != w {
					t.Errorf("%s: %v in row %v, want %q", what, cells[i], row, w)
				}
			case float64:
				if x := number(cells[i]); !(math.Abs(x-w) <= 0.02*w) {
					t.Errorf("%s: %v in row %v, want %g", what, cells[i], row, w)
				}
			}
		}
	}
	rows := func(what string, list []any, n int) bool {
		t.Helper()
		if len(list) != n {
			t.Errorf("%s: %d rows, want %d: %v", what, len(list), n, list)
		}
		return len(list) == n
	}
	for i, list := range got {
		what := blocks[i][0] + ": " + names[i]
		switch {
		case strings.Contains(names[i], "by\nminute, from the requests") && rows(what, list, 2):
			like(what, list[0], nil, "shop", 1002.0, 5.96)
			like(what, list[1], nil, "shop", 1030.0, 1500.0)
		case strings.HasPrefix(names[i], "p50 and p99 of all") && rows(what, list, 1):
			like(what, list[0], "shop", 4.0, 1500.0)
		case strings.HasPrefix(names[i], "Where the time") && len(list) > 0:
			for _, row := range list { // two, where the hour ends between the minutes
				like(what, row, nil, "shop", nil, 0.75, 0.25, 0.0)
			}
		case strings.HasPrefix(names[i], "The ten slowest") && rows(what, list, 10):
			for _, row := range list {
				like(what, row, nil, "shop", "203.0.113.9", 1500.0, nil, nil, nil, nil)
			}
		case strings.HasPrefix(names[i], "How often each cause") && rows(what, list, 1):
			like(what, list[0], "lock-convoy", 2.0, 0.75, nil, nil)
		case strings.HasPrefix(names[i], "ClickHouse") && rows(what, list, 1):
			like(what, list[0], "shop", 2032.0, 1500.0)
		case blocks[i][0] == "pandas" && strings.Contains(blocks[i][1], "weight"):
			if text := fmt.Sprint(list[0]); !strings.Contains(text, " 5.96\n") || !strings.Contains(text, " 1500.00\n") {
				t.Errorf("%s:\n%s", what, text)
			}
		case blocks[i][0] == "pandas":
			var p99 float64
			if _, err := fmt.Sscanf(fmt.Sprint(list[0]), "comm\nshop %f", &p99); err != nil || math.Abs(p99-1500) > 30 {
				t.Errorf("%s: %v\n%s", what, err, list[0])
			}
		case !t.Failed():
			t.Errorf("nothing is known of: %s", what)
		}
	}
}
