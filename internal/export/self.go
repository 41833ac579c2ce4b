package export

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
)

// mostLosses is how many kinds of losses are distinguished.
const mostLosses = 200

// self is what was lost since the start, by what.
type self struct {
	mu   sync.Mutex
	lost map[string]uint64
}

// lose takes over what was lost since the start, and gives a copy. No figure
// ever decreases, whatever comes.
func (s *self) lose(losses []observe.Loss) map[string]uint64 {
	now := map[string]uint64{}
	for _, l := range losses {
		what := label(l.What)
		if _, known := now[what]; !known && len(now) >= mostLosses {
			what = other
		}
		now[what] += uint64(max(l.Count, 0))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = map[string]uint64{}
	}
	for what, n := range now {
		if _, known := s.lost[what]; !known && len(s.lost) >= mostLosses+1 {
			what = other
		}
		s.lost[what] = max(s.lost[what], n)
	}
	return maps.Clone(s.lost)
}

// hostMetric is a metric that is of no endpoint.
type hostMetric struct {
	metric
	values func(x *snapshot, give func(value float64, labels ...string))
}

// snapshot is what is shown of no endpoint, at one moment.
type snapshot struct {
	version        string
	served, called int
	limit          int
	ended, crowded uint64
	windows        uint64
	failed         uint64
	windowEnd      time.Time
	findings       []shownFinding
	found          int
	causes         []causeRole
	causeWindows   []uint64
	status         *record.Status // nil when nobody tells
	lost           map[string]uint64
	push           *PushStats // nil when nothing is sent
	targets        []ship.Status
}

// look takes a snapshot.
func (x *Exporter) look() *snapshot {
	n := &snapshot{version: x.opt.Version, limit: x.opt.Endpoints}
	x.mu.Lock()
	n.served, n.called, n.ended, n.crowded = x.counts[0], x.counts[1], x.ended, x.crowded
	x.mu.Unlock()

	fs := &x.findings
	fs.mu.Lock()
	n.windows, n.failed, n.windowEnd, n.findings, n.found = fs.windows, fs.failed, fs.end, fs.now, fs.total
	n.causes = fs.counted()
	for _, c := range n.causes {
		n.causeWindows = append(n.causeWindows, fs.ofCause[c])
	}
	fs.mu.Unlock()

	if x.opt.Status != nil {
		status := x.opt.Status()
		n.status, n.lost = &status, x.self.lose(status.Losses)
	}
	if x.opt.Targets != nil {
		n.targets = x.opt.Targets()
	}
	if stats, ok := x.PushStats(); ok {
		n.push = &stats
	}
	return n
}

// hostMetrics are in the order of their names.
var hostMetrics = []hostMetric{
	{metric{name: "slowray_build_info", otel: "slowray.build_info", unit: "{build}", kind: gauge, labels: []string{"version"},
		help: "1, and the version of slowray."},
		func(x *snapshot, give func(float64, ...string)) { give(1, label(x.version)) }},
	{metric{name: "slowray_cpu_ratio", otel: "slowray.cpu", unit: "1", kind: gauge,
		help: "Share of all CPUs that slowray took over the last minute, 0 to 1."},
		ofStatus(func(s *record.Status) float64 { return s.CPUShare })},
	{metric{name: "slowray_endpoint_seconds_crowded_total", otel: "slowray.endpoint_seconds.crowded", unit: "{second}",
		help: "Seconds of endpoints that were counted under address=\"other\", because there were too many endpoints."},
		func(x *snapshot, give func(float64, ...string)) { give(float64(x.crowded)) }},
	{metric{name: "slowray_endpoints", otel: "slowray.endpoints", unit: "{endpoint}", kind: gauge, labels: []string{"side"},
		help: "Endpoints with series of their own."},
		func(x *snapshot, give func(float64, ...string)) {
			give(float64(x.called), observe.Called.String())
			give(float64(x.served), observe.Served.String())
		}},
	{metric{name: "slowray_endpoints_ended_total", otel: "slowray.endpoints.ended", unit: "{endpoint}",
		help: "Endpoints whose series ended for lack of traffic."},
		func(x *snapshot, give func(float64, ...string)) { give(float64(x.ended)) }},
	{metric{name: "slowray_endpoints_limit", otel: "slowray.endpoints.limit", unit: "{endpoint}", kind: gauge,
		help: "How many endpoints of each side have series of their own at most."},
		func(x *snapshot, give func(float64, ...string)) { give(float64(x.limit)) }},
	{metric{name: "slowray_finding", otel: "slowray.finding", unit: "{finding}", kind: gauge, labels: findingLabels[:],
		help: "1 for each finding of the latest window."},
		func(x *snapshot, give func(float64, ...string)) {
			for i := range x.findings {
				give(1, x.findings[i].labels[:]...)
			}
		}},
	{metric{name: "slowray_finding_impact_ratio", otel: "slowray.finding.impact", unit: "1", kind: gauge, labels: findingLabels[:],
		help: "Share of the trouble that each finding of the latest window explains, 0 to 1."},
		func(x *snapshot, give func(float64, ...string)) {
			for i := range x.findings {
				give(x.findings[i].share, x.findings[i].labels[:]...)
			}
		}},
	{metric{name: "slowray_finding_windows_total", otel: "slowray.finding.windows", unit: "{window}", labels: []string{"cause", "role"},
		help: "Windows in which the cause was found."},
		func(x *snapshot, give func(float64, ...string)) {
			for i, c := range x.causes {
				give(float64(x.causeWindows[i]), c.cause, c.role)
			}
		}},
	{metric{name: "slowray_findings", otel: "slowray.findings", unit: "{finding}", kind: gauge,
		help: "Findings of the latest window, also those that are not shown one by one."},
		func(x *snapshot, give func(float64, ...string)) { give(float64(x.found)) }},
	{metric{name: "slowray_lost_total", otel: "slowray.lost", unit: "{item}", labels: []string{"what"},
		help: "What slowray lost or skipped to stay within its bounds."},
		func(x *snapshot, give func(float64, ...string)) {
			for _, what := range slices.Sorted(maps.Keys(x.lost)) {
				give(float64(x.lost[what]), what)
			}
		}},
	{metric{name: "slowray_kept_requests_total", otel: "slowray.kept_requests", unit: "{request}", labels: []string{"why"},
		help: "Requests kept in full, by why: slow, failed, or sampled."},
		func(x *snapshot, give func(float64, ...string)) {
			if x.status != nil {
				give(float64(x.status.Requests.Failed), "failed")
				give(float64(x.status.Requests.Sampled), "sampled")
				give(float64(x.status.Requests.Slow), "slow")
			}
		}},
	{metric{name: "slowray_otlp_dropped_total", otel: "slowray.otlp.dropped", unit: "{item}", labels: []string{"signal"},
		help: "Requests, findings and points of metrics that could not be sent by OTLP: no room in the queue, or refused."},
		ofPush(func(s *PushStats, signal signal) uint64 { return s.Dropped[signal] })},
	{metric{name: "slowray_otlp_failures_total", otel: "slowray.otlp.failures", unit: "{attempt}",
		help: "Attempts to send by OTLP that failed."},
		func(x *snapshot, give func(float64, ...string)) {
			if x.push != nil {
				give(float64(x.push.Failed))
			}
		}},
	{metric{name: "slowray_otlp_sent_total", otel: "slowray.otlp.sent", unit: "{item}", labels: []string{"signal"},
		help: "Requests, findings and points of metrics that were sent by OTLP, and taken."},
		ofPush(func(s *PushStats, signal signal) uint64 { return s.Sent[signal] })},
	{metric{name: "slowray_ship_behind_seconds", otel: "slowray.ship.behind", unit: "s", kind: gauge, labels: targetLabels,
		help: "Age of the oldest record that a target of --to has not taken."},
		ofTargets(func(s *ship.Status) float64 { return s.Behind.Seconds() })},
	{metric{name: "slowray_ship_failing", otel: "slowray.ship.failing", unit: "{failure}", kind: gauge, labels: targetLabels,
		help: "1 while a target of --to takes nothing, else 0."},
		ofTargets(func(s *ship.Status) float64 {
			if s.Error != "" {
				return 1
			}
			return 0
		})},
	{metric{name: "slowray_ship_failures_total", otel: "slowray.ship.failures", unit: "{attempt}", labels: targetLabels,
		help: "Attempts to send to a target of --to that failed."},
		ofTargets(func(s *ship.Status) float64 { return float64(s.Failures) })},
	{metric{name: "slowray_ship_given_up_total", otel: "slowray.ship.given_up", unit: "{record}", labels: targetLabels,
		help: "Records that a target of --to never gets, because more waited than --to-buffer allows."},
		ofTargets(func(s *ship.Status) float64 { return float64(s.GaveUp) })},
	{metric{name: "slowray_ship_refused_total", otel: "slowray.ship.refused", unit: "{item}", labels: targetLabels,
		help: "What a target of --to has left out of batches that it took, since slowray was started."},
		ofTargets(func(s *ship.Status) float64 { return float64(s.Refused) })},
	{metric{name: "slowray_ship_sent_total", otel: "slowray.ship.sent", unit: "{record}", labels: targetLabels,
		help: "Records that a target of --to has taken since slowray was started."},
		ofTargets(func(s *ship.Status) float64 { return float64(s.Sent) })},
	{metric{name: "slowray_ship_waiting_bytes", otel: "slowray.ship.waiting", unit: "By", kind: gauge, labels: targetLabels,
		help: "What waits on disk for a target of --to."},
		ofTargets(func(s *ship.Status) float64 { return float64(s.Bytes) })},
	{metric{name: "slowray_ship_waiting_records", otel: "slowray.ship.waiting_records", unit: "{record}", kind: gauge, labels: targetLabels,
		help: "Records that wait on disk for a target of --to, about."},
		ofTargets(func(s *ship.Status) float64 { return float64(s.Records) })},
	{metric{name: "slowray_store_bytes", otel: "slowray.store", unit: "By", kind: gauge,
		help: "Size of the history on disk."},
		ofStatus(func(s *record.Status) float64 { return float64(s.Store.Bytes) })},
	{metric{name: "slowray_store_dropped_requests_total", otel: "slowray.store.dropped_requests", unit: "{request}",
		help: "Requests not stored because the disk was too slow or full."},
		ofStatus(func(s *record.Status) float64 { return float64(s.Store.Dropped) })},
	{metric{name: "slowray_store_failing", otel: "slowray.store.failing", unit: "{failure}", kind: gauge,
		help: "1 while the history cannot be written, else 0."},
		ofStatus(func(s *record.Status) float64 {
			if s.Store.LastError != "" {
				return 1
			}
			return 0
		})},
	{metric{name: "slowray_store_removed_files_total", otel: "slowray.store.removed_files", unit: "{file}",
		help: "Files of the history removed for their age or because room ran out."},
		ofStatus(func(s *record.Status) float64 { return float64(s.Store.Removed) })},
	{metric{name: "slowray_store_requests_total", otel: "slowray.store.requests", unit: "{request}",
		help: "Requests stored since slowray was started."},
		ofStatus(func(s *record.Status) float64 { return float64(s.Store.Requests) })},
	{metric{name: "slowray_window_end_timestamp_seconds", otel: "slowray.window.end.timestamp", unit: "s", kind: gauge,
		help: "When the latest window ended, in seconds since 1970."},
		func(x *snapshot, give func(float64, ...string)) {
			if x.windows > 0 {
				give(float64(x.windowEnd.UnixMilli()) / 1e3)
			}
		}},
	{metric{name: "slowray_windows_failed_total", otel: "slowray.windows.failed", unit: "{window}",
		help: "Windows that could not be watched."},
		func(x *snapshot, give func(float64, ...string)) { give(float64(x.failed)) }},
	{metric{name: "slowray_windows_total", otel: "slowray.windows", unit: "{window}",
		help: "Windows that were judged."},
		func(x *snapshot, give func(float64, ...string)) { give(float64(x.windows)) }},
}

// ofStatus is for figures there are only where somebody tells the status.
func ofStatus(f func(*record.Status) float64) func(*snapshot, func(float64, ...string)) {
	return func(x *snapshot, give func(float64, ...string)) {
		if x.status != nil {
			give(f(x.status))
		}
	}
}

// targetLabels are those of metrics of a target of --to: its URL, without a password.
var targetLabels = []string{"target"}

// ofTargets is for figures of each target of --to.
func ofTargets(f func(*ship.Status) float64) func(*snapshot, func(float64, ...string)) {
	return func(x *snapshot, give func(float64, ...string)) {
		for i := range x.targets {
			give(f(&x.targets[i]), label(x.targets[i].Title))
		}
	}
}

// ofPush is for figures there are only where something is sent, by signal.
func ofPush(f func(*PushStats, signal) uint64) func(*snapshot, func(float64, ...string)) {
	return func(x *snapshot, give func(float64, ...string)) {
		if x.push == nil {
			return
		}
		for s := range numSignals {
			give(float64(f(x.push, s)), s.String())
		}
	}
}
