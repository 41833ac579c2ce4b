package assistant

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEvaluation asks as an assistant would, of incidents that were recorded, and looks for
// the facts that a right answer needs, word by word. No model is part of it. The bytes that
// each answer took are logged.
func TestEvaluation(t *testing.T) {
	for _, c := range []struct {
		incident, question string
		facts              []string
	}{
		{"accept-queue-wait", "which queue is full, and for whom?", []string{"PROBLEM", `"accept-queue-wait"`, "booking-app", ":2714", "220 ms of it waiting for accept()"}},
		{"affinity-too-narrow", "why is it slow while a CPU is idle, and what repairs it?", []string{`"affinity-too-narrow"`, "23.7 ms", "taskset --all-tasks --cpu-list --pid 0-1 23113"}},
		{"apache-workers", "what do requests wait for?", []string{`"apache-workers-exhausted"`, "259 ms of its 310 ms", "4 workers"}},
		{"connect-timeout", "who does not answer?", []string{`"connect-timeout"`, "192.0.2.13:4477", "292 of 292 connections"}},
		{"container-oom", "what killed it?", []string{`"jvm-heap-over-limit"`, `"container-oom-killed"`, "java", "how far the heap may grow"}},
		{"draw-dns-dead", "is it the network or DNS?", []string{`"dns-timeout"`, "192.0.2.5", "160 of 200 queries"}},
		{"draw-firewall", "which rule drops packets?", []string{`"firewall-drop"`, "tcp sport 3814 numgen random mod 100", "mangle2"}},
		{"draw-haproxy", "which limit is reached?", []string{`"haproxy-maxconn"`, "5 of 5 connections are taken", "haproxy.cfg:2"}},
		{"gil-contention", "why do threads not help?", []string{`"gil-contention"`, "python3", "47.9 ms"}},
		{"nginx-throughput", "throughput collapsed, the CPU is idle: what is it, and what was ruled out?", []string{`"conntrack-full"`, "sysctl -w net.netfilter.nf_conntrack_max=262144", `"causes_ruled_out":`, `"unit":"packets"`, "conntrack statistics"}},
		{"pids-limit", "why do requests get no whole answer?", []string{`"pids-limit"`, "3,113 of 8,164 requests", "pids.max"}},
		{"redis-keys", "is it our code or Redis?", []string{`"redis-slow-command"`, "192.0.2.3:5603", "46.4 ms of it for Redis"}},
		{"rp-filter-drop", "why does no connection work?", []string{`"rp-filter-drop"`, "192.0.2.10", "rp_filter"}},
		{"tcprt-six-phases", "the median is fine: what are the slowest?", []string{`"network-loss"`, "154 ms of it lost to re", ":2844"}},
		{"time-wait-port-search", "what burns the CPU?", []string{`"time-wait-port-search"`, "__inet_hash_connect", "net.ipv4.tcp_tw_reuse=1"}},
		{"uwsgi-harakiri", "who ends the workers?", []string{`"uwsgi-harakiri"`, "59 workers were killed after 1 s"}},
		{"draw-healthy", "is anything wrong?", []string{"OK", `"findings":[]`}},
		{"long-poll", "requests take a second: is that a problem?", []string{"OK", `"findings":[]`}},
	} {
		t.Run(c.incident, func(t *testing.T) {
			report := filepath.Join("../diagnose/testdata/corpus", "lab-"+c.incident+"-1", "report.json")
			s := connect(t, Options{Command: func(_ context.Context, args ...string) ([]byte, error) {
				if args[0] != "why" {
					t.Errorf("slowray %s was asked", strings.Join(args, " "))
				}
				return os.ReadFile(report)
			}})
			text := ask(t, s, "why", map[string]any{})
			t.Logf("%s: %d bytes", c.question, len(text))
			for _, fact := range c.facts {
				if !strings.Contains(text, fact) {
					t.Errorf("%s: the answer lacks %q:\n%s", c.question, fact, text)
				}
			}
		})
	}
}
