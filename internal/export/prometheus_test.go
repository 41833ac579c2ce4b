package export

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// realPrometheus runs Debian's Prometheus on a free port of loopback, with its
// own directory, and has it scrape target with native histograms. It is ended
// with the test.
func realPrometheus(t *testing.T, target, rules string) (api string) {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: no prometheus on this machine (script/setup.sh test installs it)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}
rule_files: [%q]
scrape_configs: [{job_name: slowray, static_configs: [{targets: [%q]}]}]
`, rules, to.Host)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+file, "--web.listen-address="+addr, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--enable-feature=native-histograms", "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		end := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		end.Stop()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("Prometheus said: %.3000s", text)
		}
		log.Close()
	})
	api = "http://" + addr + "/api/v1/"
	for range 300 {
		if r, err := http.Get("http://" + addr + "/-/ready"); err == nil {
			r.Body.Close()
			if r.StatusCode == 200 {
				return api
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("Prometheus is not ready after 30 s")
	return ""
}

// sampleOf is one series of an answer.
type sampleOf struct {
	Metric map[string]string
	Value  [2]any
}

// query asks Prometheus. What is wrong with the query fails the test.
func query(t *testing.T, api, text string) []sampleOf {
	t.Helper()
	r, err := http.Get(api + "query?query=" + url.QueryEscape(text))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []sampleOf }
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", text, answer.Error)
	}
	return answer.Data.Result
}

// number waits until a query has an answer, and gives its first value.
func number(t *testing.T, api, text string) float64 {
	t.Helper()
	for range 200 {
		if got := query(t, api, text); len(got) > 0 && len(got[0].Value) == 2 {
			v, err := strconv.ParseFloat(fmt.Sprint(got[0].Value[1]), 64)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if v == v { // not NaN
				return v
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: no answer after 20 s", text)
	return 0
}

// feeding adds seconds, many times as fast as they pass, until the test ends.
func feeding(t *testing.T, x *Exporter) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for {
			x.add(secondOf(observe.Served, "127.0.0.1", 80, "nginx"))
			x.add(secondOf(observe.Called, "127.0.0.1", 3306, "php-fpm8.2"))
			x.Window(windowOf(findingOf("blocked-on-disk", "nginx", 80)))
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
}

// TestRealPrometheus: Prometheus scrapes it and has the native histograms, and
// their quantiles are right.
func TestRealPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: starts Prometheus")
	}
	x := fed(1, 1, Options{Version: "v1"})
	server := httptest.NewServer(x.Handler())
	t.Cleanup(server.Close)
	rules, err := filepath.Abs("../../packaging/prometheus/slowray.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	api := realPrometheus(t, server.URL, rules)
	feeding(t, x)

	const nginx = `{side="served",process="nginx",port="80"}`
	if n := number(t, api, `histogram_count(slowray_request_duration_seconds`+nginx+`)`); n < 7 {
		t.Errorf("%g requests in the native histogram, want 7 at least", n)
	}
	for q, want := range map[string]float64{"0.5": 2.1e-3, "0.99": 215e-3} {
		got := number(t, api, `histogram_quantile(`+q+`, slowray_request_duration_seconds`+nginx+`)`)
		if got < want*0.96 || got > want*1.04 {
			t.Errorf("quantile %s is %g s, want %g s within 4 %%", q, got, want)
		}
	}
	if n := number(t, api, `rate(slowray_requests_total`+nginx+`[5s])`); n <= 0 {
		t.Errorf("rate %g", n)
	}
	if n := number(t, api, `slowray_finding{cause="blocked-on-disk"}`); n != 1 {
		t.Errorf("finding: %g", n)
	}
	// Every query of the dashboard and of the documentation gives an answer.
	for where, q := range dashboardQueries(t) {
		if got := query(t, api, q); len(got) == 0 {
			t.Errorf("%s: nothing: %s", where, q)
		}
	}
	for _, q := range documentedQueries(t) {
		query(t, api, q)
	}
	if n := number(t, api, `slowray:request_duration_seconds:p99_5m`+nginx); n < 0.2 || n > 0.23 {
		t.Errorf("recorded 99th percentile %g s, want 0.215 s", n)
	}
}
