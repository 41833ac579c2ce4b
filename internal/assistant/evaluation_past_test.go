package assistant

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/web"
)

// evaluated is a question to a tool, and the facts that a right answer has.
type evaluated struct {
	tool, question string
	args           map[string]any
	facts          []string
}

func (e *evaluated) ask(t *testing.T, o Options) string {
	t.Helper()
	answer := ask(t, connect(t, o), e.tool, e.args)
	t.Logf("%s: %s: %d bytes", e.tool, e.question, len(answer))
	for _, fact := range e.facts {
		if !strings.Contains(answer, fact) {
			t.Errorf("%s: %s: the answer lacks %q:\n%s", e.tool, e.question, fact, answer)
		}
	}
	return answer
}

// historyAt is the page's answers of a history.
func historyAt(t *testing.T, dir string) Options {
	t.Helper()
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	h, err := web.New(r, web.Options{Version: "t", Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	return Options{History: func() (http.Handler, error) { return h, nil }}
}

// TestEvaluationOfRequests asks of a history that was recorded.
func TestEvaluationOfRequests(t *testing.T) {
	dir := t.TempDir() // readers lock it
	if err := os.CopyFS(dir, os.DirFS("../store/testdata/history/2026-11-28")); err != nil {
		t.Fatal(err)
	}
	o := historyAt(t, dir)
	const at = "2026-11-22T11:59:00Z"
	e := evaluated{"slow_requests", "which request failed, and what was it waiting for?", map[string]any{"at": at, "seconds": 300, "status": "error"},
		[]string{`"total_matching":1`, `"http_status":502`, `"total_us":7931.000`, `"server.call":7215.000`, `"peer_addr":"10.1.0.20"`, `"unit":"docker-0.service"`}}
	var failed struct{ Requests []struct{ ID string } }
	if err := json.Unmarshal([]byte(e.ask(t, o)), &failed); err != nil || len(failed.Requests) != 1 {
		t.Fatalf("%d requests, %v", len(failed.Requests), err)
	}
	for _, e := range []evaluated{
		{"request", "where did it come from, and was it the network?", map[string]any{"id": failed.Requests[0].ID},
			[]string{`"peer_addr":"10.1.0.20"`, `"server.call":7215`, `"network":154`, `"http_status":502`}},
		{"services", "which service has errors, and what takes its time?", map[string]any{"at": at, "seconds": 300},
			[]string{`"title":"svc-1 10.0.0.1:8001"`, `"requests":80,"requests_per_s":2.5,"errors":1`, `"max":215434`, `"retrans":{"mean":2686.9,"p99":216006.7,"share":0.565}`}},
		{"slow_requests", "which of port 8000 that were answered well are the slowest?", map[string]any{"at": at, "seconds": 300, "port": 8000, "status": "ok", "count": 1},
			[]string{`"total_us":3389.000`, `"server.call":2228.000`, `"peer_addr":"10.1.0.24"`, `"pod":"cart-7d9f8b6c5d-x2x4z"`, `"total_matching":6`}},
	} {
		e.ask(t, o)
	}
}

// TestEvaluationOfHistory asks of an incident that was recorded, when it is in a history.
func TestEvaluationOfHistory(t *testing.T) {
	o, err := observe.Load("../diagnose/testdata/corpus/lab-nginx-throughput-1/observation.json.zst")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	report := diagnose.Diagnose(t.Context(), o, diagnose.Saved)
	if err := s.AddObservation(o, report.Findings); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e := evaluated{"history", "what was it last night, since when, and what repairs it?", map[string]any{"at": "2026-11-23T20:00:00Z", "seconds": 3600},
		[]string{`"cause":"conntrack-full"`, `"onset":1795464393.9`, "4,000 packets of new connections dropped", `"fact":"entries in use, peak","value":200,"limit":200`,
			"sysctl -w net.netfilter.nf_conntrack_max=262144", "slowray prove conntrack-full --port 4318 --apply"}}
	e.ask(t, historyAt(t, dir))
}

// TestEvaluationOfCommands asks of what commands have answered: prove on a host, fleet why of the
// fleet with a slow database of the tests of internal/fleet/answer. Their answers are by the schema
// that they have today.
func TestEvaluationOfCommands(t *testing.T) {
	for _, c := range []struct {
		evaluated
		file, schema string
	}{
		{evaluated{"fleet_why", "checkout is slow on all hosts: where does it come from?", map[string]any{},
			[]string{`"host":"db-7","service":"mariadbd:3306"`, `"cause":"fsync-bound"`, `"inside":8,"inside_of":8,"outside":0`, "of it server disk", `"since":"2027-01-15T10:20:02Z"`}}, "fleet.json", "fleet"},
		{evaluated{"proof_plan", "what would be changed, for how long, and how is it undone?", map[string]any{"cause": "slow-start-after-idle", "port": 27801},
			[]string{"sysctl -w net.ipv4.tcp_slow_start_after_idle=0", `"undo":["sysctl -w net.ipv4.tcp_slow_start_after_idle=1"]`, `"takes":"measures for about`, `"applied":false`, "slowray prove slow-start-after-idle --apply"}}, "prove.json", "prove"},
	} {
		name := filepath.Join("testdata", c.file)
		schema, err := jsonschema.NewCompiler().Compile("../../schema/" + c.schema + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(recorded); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.ask(t, Options{Command: func(context.Context, ...string) ([]byte, error) { return text, nil }})
	}
	e := evaluated{"cause_page", "what looks like a full conntrack table and is not, and what is the fix?", map[string]any{"cause": "conntrack-full"},
		[]string{"A table that is nearly full and drops nothing.", "Raise nf_conntrack_max on the host", `"provable":true`, `"network-loss"`}}
	e.ask(t, Options{})
}
