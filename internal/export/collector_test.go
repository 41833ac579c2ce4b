package export

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRealCollector: an OpenTelemetry Collector takes everything, by HTTP and by
// gRPC. It takes a minute to build, so it is only run where SLOWRAY_COLLECTOR
// names one (testdata/collector/builder.yaml tells how); TestPush decodes the
// same messages each time.
func TestRealCollector(t *testing.T) {
	program := os.Getenv("SLOWRAY_COLLECTOR")
	if program == "" {
		t.Skip("SKIPPED: SLOWRAY_COLLECTOR names no OpenTelemetry Collector (testdata/collector/builder.yaml)")
	}
	dir := t.TempDir()
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	http, grpc := free(), free()
	config := fmt.Sprintf(`receivers: {otlp: {protocols: {http: {endpoint: %q}, grpc: {endpoint: %q}}}}
exporters: {debug: {verbosity: detailed, sampling_initial: 1000000}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [debug]}
    traces: {receivers: [otlp], exporters: [debug]}
    logs: {receivers: [otlp], exporters: [debug]}
`, http, grpc)
	file, out := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		end := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		end.Stop()
	})
	for _, url := range []string{"http://" + http, "grpc://" + grpc} {
		host := strings.ReplaceAll(url, ":", "-")
		x := fed(1, 3, Options{Version: "v1", Host: host})
		stop := pushing(t, x, url, func(o *PushOptions) { o.Every, o.firstWait = time.Second, 200*time.Millisecond })
		x.Request(slowRequest())
		x.Window(windowOf(findingOf("blocked-on-disk", "nginx", 80)))
		deadline := time.Now().Add(30 * time.Second)
		for {
			s, _ := x.PushStats()
			if s.Sent[requestSignal] == 1 && s.Sent[findingSignal] == 2 && s.Sent[metricSignal] > 50 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: after 30 s: %+v", url, s)
			}
			time.Sleep(50 * time.Millisecond)
		}
		stop()
		s, _ := x.PushStats()
		if s.Dropped != [numSignals]uint64{} {
			t.Errorf("%s: dropped %v: %s", url, s.Dropped, s.Last)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"Name: slowray.request.duration", "DataType: ExponentialHistogram", "Name: slowray.requests\n", "EventName: slowray.finding.begin",
			"slowray.cause: Str(blocked-on-disk)", "slowray.ledger_us.server.blocked.disk: Double(199000)", "service.name: Str(nginx)",
			"host.name: Str(" + host + ")", "Name           : GET",
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: the collector does not tell of %q", url, want)
			}
		}
	}
	if t.Failed() {
		text, _ := os.ReadFile(out)
		t.Logf("%.6000s", text)
	}
}
