package export

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet/ship"
)

const (
	dashboardFile = "../../packaging/grafana/slowray.json"
	rulesFile     = "../../packaging/prometheus/slowray.rules.yml"
	docsFile      = "../../docs/export.md"
	queriesFile   = "../../docs/export-queries.md"
	otlpFile      = "../../docs/export-otlp.md"
)

// dashboardQueries are the queries of the dashboard's panels, by panel, with its
// variables set as Grafana does when all is chosen.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	var d struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ RefID, Expr string }
		}
	}
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatalf("the dashboard is not JSON: %v", err)
	}
	out := map[string]string{}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, q := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "2s", "$instance", ".*", "$side", "served", "$process", ".*", "$address", ".*").Replace(q.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q: a variable that is not known: %s", p.Title, expr)
			}
			out[p.Title+" "+q.RefID] = expr
		}
	}
	if len(out) < 20 {
		t.Fatalf("the dashboard has only %d queries", len(out))
	}
	return out
}

var metricName = regexp.MustCompile(`\b(?:slowray|process|go|promhttp)_[a-z0-9_]+`)

// exported says whether a metric of this name is exported.
func exported() func(name string) bool {
	names := []string{"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_start_time_seconds"}
	for _, m := range declared() {
		names = append(names, m.name)
		if m.kind == histogram {
			names = append(names, m.name+"_bucket", m.name+"_sum", m.name+"_count")
		}
	}
	return func(name string) bool { return slices.Contains(names, name) }
}

// labelName finds the names of labels in what a query groups by.
var (
	grouping  = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
	labelsAll = func() []string {
		names := []string{"instance", "job", "le", ""}
		for _, m := range declared() {
			names = append(names, m.labels...)
		}
		return append(names, endpointLabels...)
	}()
)

func checkQuery(t *testing.T, where, query string) {
	t.Helper()
	known := exported()
	names := metricName.FindAllString(query, -1)
	for _, name := range names {
		if !known(name) {
			t.Errorf("%s uses %s, which is not exported", where, name)
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for name := range strings.SplitSeq(g[1], ",") {
			if !slices.Contains(labelsAll, strings.TrimSpace(name)) {
				t.Errorf("%s groups by %q, which is no label", where, name)
			}
		}
	}
}

func TestDashboardUsesWhatIsExported(t *testing.T) {
	for where, q := range dashboardQueries(t) {
		checkQuery(t, where, q)
		if !metricName.MatchString(q) {
			t.Errorf("%s uses no metric: %s", where, q)
		}
	}
	data, _ := os.ReadFile(dashboardFile)
	for _, q := range regexp.MustCompile(`label_values\((.*?), *([a-z]+)\)"`).FindAllStringSubmatch(string(data), -1) {
		checkQuery(t, "variable", q[1])
		if !slices.Contains(labelsAll, q[2]) {
			t.Errorf("a variable asks for label %q", q[2])
		}
	}
}

func TestRulesUseWhatIsExported(t *testing.T) {
	data, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	checkQuery(t, "the rules", string(data))
	recorded := map[string]bool{}
	for _, m := range regexp.MustCompile(`record: (\S+)`).FindAllStringSubmatch(string(data), -1) {
		recorded[m[1]] = true
	}
	for _, name := range regexp.MustCompile(`\bslowray:[a-z0-9_:]+`).FindAllString(string(data), -1) {
		if !recorded[name] {
			t.Errorf("the rules use %s, which none records", name)
		}
	}
}

// TestQueriesParse: promtool takes the rules, and the queries of the dashboard
// and of the documentation.
func TestQueriesParse(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: no promtool on this machine (script/setup.sh test installs it)")
	}
	text := "groups:\n- name: queries\n  rules:\n"
	all := dashboardQueries(t)
	for i, q := range documentedQueries(t) {
		all[fmt.Sprintf("documentation %d", i)] = q
	}
	i := 0
	for where, q := range all {
		expr, _ := json.Marshal(q) // a JSON string is one of YAML
		text += fmt.Sprintf("  - record: query:%d # %s\n    expr: %s\n", i, where, expr)
		i++
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{rulesFile, file} {
		if out, err := exec.Command(promtool, "check", "rules", f).CombinedOutput(); err != nil {
			t.Errorf("promtool check rules %s: %v\n%s", f, err, out)
		}
	}
	// The test can fail.
	if err := os.WriteFile(file, []byte("groups:\n- name: bad\n  rules:\n  - record: a:b\n    expr: 'sum by (x (y)'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if exec.Command(promtool, "check", "rules", file).Run() == nil {
		t.Error("promtool takes a query that is none")
	}
}

// documentedQueries are those of docs/export-queries.md, in its blocks of promql.
func documentedQueries(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(queriesFile)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
		for q := range strings.SplitSeq(strings.TrimSpace(block[1]), "\n\n") {
			var lines []string
			for line := range strings.Lines(q) {
				if !strings.HasPrefix(line, "#") {
					lines = append(lines, strings.TrimRight(line, "\n"))
				}
			}
			if len(lines) > 0 {
				out = append(out, strings.Join(lines, "\n"))
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("docs/export-queries.md has no query")
	}
	return out
}

// TestDocumentation: every metric is documented with its kind and unit, and no
// other is.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, m := range declared() {
		row := regexp.MustCompile("(?m)^\\| `" + m.name + "` \\| " + m.kind.String() + " \\| (.*?) \\|").FindStringSubmatch(text)
		if row == nil {
			t.Errorf("docs/export.md does not tell of %s, a %s", m.name, m.kind)
			continue
		}
		for _, l := range m.labels {
			if !strings.Contains(row[1], "`"+l+"`") && !slices.Equal(m.labels, findingLabels[:]) {
				t.Errorf("docs/export.md does not tell of the label %s of %s", l, m.name)
			}
		}
	}
	known := exported()
	for _, file := range []string{docsFile, queriesFile, otlpFile} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricName.FindAllString(string(data), -1) {
			if !known(name) {
				t.Errorf("%s tells of %s, which is not exported", file, name)
			}
		}
	}
	for _, q := range documentedQueries(t) {
		checkQuery(t, "docs/export-queries.md", q)
	}
}

// TestPromtoolLikesTheMetrics: names, units and help are as Prometheus' own linter
// wants them.
func TestPromtoolLikesTheMetrics(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: no promtool on this machine (script/setup.sh test installs it)")
	}
	x := fed(2, 2, Options{Version: "v1", Targets: func() []ship.Status { return []ship.Status{{Title: "clickhouse://a", Error: "away", Records: 42}} }})
	if _, err := x.Push(PushOptions{URL: "http://localhost"}); err != nil {
		t.Fatal(err)
	}
	_, text := scrape(t, x)
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	for _, m := range declared() {
		if !strings.Contains(text, "\n# TYPE "+m.name+" ") {
			t.Errorf("%s was not looked at", m.name)
		}
	}
}

// TestPanelsDoNotOverlap: each has an ID and a place of its own.
func TestPanelsDoNotOverlap(t *testing.T) {
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
		}
	}
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		g := p.GridPos
		if ids[p.ID] || g.X < 0 || g.X+g.W > 24 || g.W < 1 || g.H < 1 {
			t.Errorf("panel %q: ID %d at %+v", p.Title, p.ID, g)
		}
		ids[p.ID] = true
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if by := taken[[2]int{x, y}]; by != "" {
					t.Fatalf("panels %q and %q overlap", by, p.Title)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
