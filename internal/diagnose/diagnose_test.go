package diagnose

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

func finding(id cause.ID, weight float64) cause.Finding {
	return cause.Finding{Cause: id, Role: cause.RoleCause, Weight: weight}
}

func order(findings []cause.Finding) []string {
	var ids []string
	for _, f := range findings {
		id := f.Cause
		if f.ConsequenceOf != nil {
			id += " < " + *f.ConsequenceOf
		}
		ids = append(ids, string(id))
	}
	return ids
}

func TestRankAndFold(t *testing.T) {
	catalogue := cause.Catalogue()
	children := cause.ID("php-fpm-children-exhausted")
	overflow := finding("accept-queue-overflow", 0.9)
	overflow.ConsequenceOf = &children
	orphan := finding("accept-queue-overflow", 0.9)
	orphan.ConsequenceOf = &children
	for _, c := range []struct {
		name string
		in   []cause.Finding
		want []string
	}{
		{"heaviest first", []cause.Finding{finding("nginx-worker-connections", 0.2), finding("ephemeral-ports-exhausted", 0.9)},
			[]string{"ephemeral-ports-exhausted", "nginx-worker-connections"}},
		{"the layer met first breaks a tie", []cause.Finding{finding("ephemeral-ports-exhausted", 0.9), finding("conntrack-full", 0.9)},
			[]string{"conntrack-full", "ephemeral-ports-exhausted"}},
		{"consequences behind all causes", []cause.Finding{finding("nginx-upstream-errors", 1), finding("ephemeral-ports-exhausted", 0.1)},
			[]string{"ephemeral-ports-exhausted", "nginx-upstream-errors < ephemeral-ports-exhausted"}},
		{"under the heaviest of several causes", []cause.Finding{finding("client-aborts", 1), finding("fd-limit", 0.1), finding("conntrack-full", 0.2)},
			[]string{"conntrack-full", "fd-limit", "client-aborts < conntrack-full"}},
		{"up to the root", []cause.Finding{finding("syn-cookies-sent", 0), overflow, finding(children, 0.5)},
			[]string{string(children), string("accept-queue-overflow < " + children), string("syn-cookies-sent < " + children)}},
		{"a cause without its parent stands for itself", []cause.Finding{orphan}, []string{"accept-queue-overflow"}},
		{"without a known cause a symptom stands for itself", []cause.Finding{finding("client-aborts", 0.3)}, []string{"client-aborts"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := slices.Clone(c.in)
			fold(cause.NewView(&observe.Observation{}), in, catalogue)
			if diff := cmp.Diff(c.want, order(rank(in, catalogue))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSymptomOfAnotherService: a symptom is not blamed on a cause that was
// found elsewhere, nor on one that cannot bring it about.
func TestSymptomOfAnotherService(t *testing.T) {
	at := func(f cause.Finding, netns uint64, parents []cause.Parent) cause.Finding {
		f.Subject.NetNS, f.Parents = netns, parents
		return f
	}
	for _, c := range []struct {
		name string
		in   []cause.Finding
		want []string
	}{
		{"in another namespace", []cause.Finding{at(finding("nginx-upstream-errors", 0.99), 7, nil), at(finding("fd-limit", 0.9), 8, nil)},
			[]string{"nginx-upstream-errors", "fd-limit"}},
		{"of the whole machine", []cause.Finding{at(finding("nginx-upstream-errors", 0.9), 7, nil), at(finding("cpu-saturated", 0.5), 8, nil)},
			[]string{"cpu-saturated", "nginx-upstream-errors < cpu-saturated"}},
		{"connection refused", []cause.Finding{at(finding("nginx-upstream-errors", 0.99), 7, []cause.Parent{}), at(finding("fd-limit", 0.9), 7, nil)},
			[]string{"nginx-upstream-errors", "fd-limit"}},
	} {
		fold(cause.NewView(&observe.Observation{}), c.in, cause.Catalogue())
		if diff := cmp.Diff(c.want, order(rank(c.in, cause.Catalogue()))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestOrderDoesNotMatter: whatever order causes are checked in, the ranking is
// the same.
func TestOrderDoesNotMatter(t *testing.T) {
	catalogue := cause.Catalogue()
	var all []cause.Finding
	for i, c := range catalogue {
		all = append(all, finding(c.ID, float64(i%4)/4))
	}
	var want []string
	for seed := range uint64(200) {
		in := slices.Clone(all)
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		fold(cause.NewView(&observe.Observation{}), in, catalogue)
		got := order(rank(in, catalogue))
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

func TestEveryCauseIsAccountedFor(t *testing.T) {
	o := &observe.Observation{Gaps: []observe.Gap{
		{Kind: observe.KindConntrack, Because: "permission denied"},
		{Kind: observe.KindProfile, Because: "no BPF"},
		{Kind: observe.KindNginx, Subject: "/var/log/nginx/error.log", Because: "is a pipe", Partial: true},
	}}
	r := judge(o)
	told := map[string]string{}
	for _, e := range r.RuledOut {
		told[e.Cause] = e.Because
	}
	for _, e := range r.NotChecked {
		told[e.Cause] = e.Because
	}
	for _, c := range cause.Catalogue() {
		if told[string(c.ID)] == "" {
			t.Errorf("%s is neither found, ruled out nor not checked", c.ID)
		}
	}
	if told["conntrack-full"] != "permission denied" || told["time-wait-port-search"] != "no BPF" {
		t.Errorf("not checked with the wrong reason: %v", r.NotChecked)
	}
	if !strings.Contains(told["nginx"], "is a pipe") {
		t.Errorf("the partial gap is not told: %v", r.NotChecked)
	}
}

// recorded are Observations of lab incidents, saved on Linux 6.18 in November
// 2026 with slowray why --save.
func recorded(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.slowray")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded observation: %v", err)
	}
	return files
}

func TestReplayIsByteIdentical(t *testing.T) {
	for _, file := range recorded(t) {
		var first []byte
		for range 20 {
			o, err := observe.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(judge(o))
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = got
			}
			if !bytes.Equal(first, got) {
				t.Fatalf("%s: judged differently the second time:\n%s\n%s", file, first, got)
			}
		}
	}
}

func TestReportMatchesItsSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../schema/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range recorded(t) {
		o, err := observe.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		validate(t, schema, file, judge(o))
	}
	validate(t, schema, "empty", judge(&observe.Observation{}))
}

func validate(t *testing.T, schema *jsonschema.Schema, name string, r Report) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestRecordedIncidents: what was injected when each observation was recorded
// is what is found, in the order in which fixing it helps.
func TestRecordedIncidents(t *testing.T) {
	want := map[string][]string{
		"nginx-throughput-S0": {"conntrack-full", "ephemeral-ports-exhausted", "nginx-upstream-errors < conntrack-full"},
		"nginx-throughput-S1": {"ephemeral-ports-exhausted", "accept-queue-overflow", "php-fpm-children-exhausted", "accept-queue-overflow",
			"nginx-upstream-errors < ephemeral-ports-exhausted"},
		"nginx-throughput-S2":   {"ephemeral-ports-exhausted", "accept-queue-overflow", "accept-queue-overflow", "nginx-upstream-errors < ephemeral-ports-exhausted"},
		"nginx-throughput-S3":   {"ephemeral-ports-exhausted", "nginx-upstream-errors < ephemeral-ports-exhausted"},
		"nginx-throughput-S4":   {"nginx-worker-connections"},
		"nginx-throughput-S6":   nil,
		"cpu-saturated":         {"cpu-saturated"},
		"tw-reuse-loopback":     nil,
		"time-wait-port-search": {"time-wait-port-search", "ephemeral-ports-exhausted < time-wait-port-search", "nginx-upstream-errors < time-wait-port-search"},
	}
	files := recorded(t)
	if len(files) != len(want) {
		t.Errorf("%d recorded observations, %d expectations", len(files), len(want))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".slowray")
		o, err := observe.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[name], order(judge(o).Findings)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Whatever the findings say of each other, somebody is to blame.
func TestSomebodyIsToBlame(t *testing.T) {
	catalogue := []cause.Cause{
		{ID: "a", ConsequenceOf: []cause.Parent{cause.ID("b")}, Folds: true},
		{ID: "b", ConsequenceOf: []cause.Parent{cause.ID("c")}, Folds: true},
		{ID: "c", ConsequenceOf: []cause.Parent{cause.ID("a")}, Folds: true},
	}
	for _, c := range []struct {
		name string
		in   []cause.Finding
		want []string
	}{
		{"in a circle, the heaviest", []cause.Finding{finding("a", 0.1), finding("b", 0.3), finding("c", 0.2)}, []string{"b", "c < b", "a < b"}},
		{"two of them, in no circle", []cause.Finding{finding("a", 0.3), finding("b", 0.1)}, []string{"b", "a < b"}},
	} {
		in := slices.Clone(c.in)
		fold(cause.NewView(&observe.Observation{}), in, catalogue)
		if diff := cmp.Diff(c.want, order(rank(in, catalogue))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// Two faults of two services on one host, in one network namespace, both stay
// causes; what follows from one of them is reported under it alone.
func TestTwoServicesTwoCauses(t *testing.T) {
	o := &observe.Observation{
		Window: observe.Window{Seconds: 10},
		Namespaces: []observe.NetNS{{Inode: 7, PID: 1, Addrs: []string{"10.0.0.1"}, Listeners: []observe.Listener{
			{Proto: "tcp", Addr: "0.0.0.0", Port: 80, PID: 10, PIDs: []int{10}, Comm: "nginx", Opened: 40},
			{Proto: "tcp", Addr: "0.0.0.0", Port: 8080, PID: 30, PIDs: []int{30}, Comm: "shop", Opened: 40}}}},
		Processes: []observe.Process{{PID: 10, PPID: 1, Comm: "nginx"}, {PID: 30, PPID: 1, Comm: "shop"}},
		Connects:  []observe.Connect{{PID: 10, NetNS: 7, Family: "inet", Addr: "10.0.0.9", Port: 9000, Calls: 1}},
		Cgroups:   []observe.Cgroup{{Path: "/shop", PIDs: []int{30}, QuotaCPUs: 0.1}},
	}
	of := func(f cause.Finding, kind string, pid int, path string) cause.Finding {
		f.Subject = cause.Subject{Kind: kind, NetNS: 7, PID: pid, Path: path}
		return f
	}
	in := []cause.Finding{
		of(finding("cpu-quota-throttled", 0.9), "cgroup", 30, "/shop"),
		of(finding("nginx-upstream-errors", 0.4), "process", 10, ""),
		of(finding("client-aborts", 0.3), "process", 10, ""),
		of(finding("fd-limit", 0.5), "process", 30, ""),
	}
	fold(cause.NewView(o), in, cause.Catalogue())
	want := []string{"cpu-quota-throttled", "fd-limit", "nginx-upstream-errors", "client-aborts < nginx-upstream-errors"}
	if diff := cmp.Diff(want, order(rank(in, cause.Catalogue()))); diff != "" {
		t.Error(diff)
	}
}

// judge judges as slowray replay does.
func judge(o *observe.Observation) Report { return Diagnose(context.Background(), o, Saved) }
