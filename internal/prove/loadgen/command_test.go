package loadgen

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFor(t *testing.T) {
	for line, want := range map[string]string{
		"wrk -c 100 -t2 -d 30s http://h/":            "wrk -c 100 -t2 -d 3s http://h/",
		"wrk -d30s http://h/":                        "wrk -d3s http://h/",
		"wrk --duration=1m http://h/":                "wrk --duration=3s http://h/",
		"/usr/bin/ab -t 10 -n 1000000 http://h/":     "/usr/bin/ab -t 3 -n 1000000 http://h/",
		"hey -z 10s http://h/":                       "hey -z 2.5s http://h/",
		"sysbench oltp_read_only --time=60 run":      "sysbench oltp_read_only --time=3 run",
		"nsenter --net=/run/n wrk -d 9 http://h/":    "nsenter --net=/run/n wrk -d 3s http://h/",
		"ip netns exec c wrk -d 9 http://h/":         "ip netns exec c wrk -d 3s http://h/",
		"wrk http://h/":                              "",
		"ab -n 100 http://h/":                        "",
		"wrk -d 9 http://h/ | tee out":               "", // takes a shell
		"vegeta attack -duration=5s | vegeta report": "",
		"./load.sh -d 3":                             "",
		"echo wrk -d 3":                              "",
	} {
		c, err := Parse(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if c.Adjustable() != (want != "") {
			t.Errorf("%s: adjustable %v", line, c.Adjustable())
		}
		if want == "" {
			want = line
		}
		if got := c.For(2500 * time.Millisecond); got.Line != want {
			t.Errorf("%s: %s", line, got.Line)
		}
	}
	for _, line := range []string{"", "  ", "wrk 'http://h/", `""`} {
		if _, err := Parse(line); err == nil {
			t.Errorf("%q is understood", line)
		}
	}
}

func TestQuotes(t *testing.T) {
	c, err := Parse(`wrk -d 3 -H 'Host: a b' "http://h/?a=1&b=2"`)
	if err != nil || len(c.argv) != 6 || c.argv[4] != "Host: a b" || c.argv[5] != "http://h/?a=1&b=2" {
		t.Errorf("%q, %v", c.argv, err)
	}
}

func TestRun(t *testing.T) {
	ctx := t.Context()
	c, err := Parse("cat testdata/wrk-bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	r, out, err := c.Run(ctx)
	if err != nil || r.Tool != "wrk" || r.Good() != 30999 || out.Elapsed <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for line, want := range map[string]string{
		"echo hello":                            ErrUnknown.Error(),
		"sh -c 'echo no such host >&2; exit 3'": `the load "sh -c 'echo no such host >&2; exit 3'": exit status 3: no such host`,
		"/nonexistent/wrk -d 1 http://h/":       "no such file or directory",
		"cat testdata/wrk-refused.txt; false":   "exit status 1: unable to connect to 127.0.0.1:1 Connection refused",
	} {
		c, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Run(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestStop ends a load in the middle, with the processes that it has started.
func TestStop(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	file := t.TempDir() + "/pid"
	c, err := Parse("sleep 30 & echo $! > " + file + "; wait")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, _, err := c.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("stopped after %s", took)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	for _, d := range strings.TrimSpace(string(pid)) {
		n = 10*n + int(d-'0')
	}
	for range 100 { // until init has taken it
		if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(n, syscall.SIGKILL)
	t.Error("a process of the load goes on")
}
