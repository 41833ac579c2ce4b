package export

import (
	"github.com/slowray/slowray/internal/observe"
)

// kind is how a metric behaves.
type kind uint8

const (
	counter kind = iota // only grows while its series lasts
	gauge
	histogram
)

func (k kind) String() string { return [...]string{"counter", "gauge", "histogram"}[k] }

// metric declares one metric; the exposition, OTLP and the tests of the
// documentation, the dashboard and the rules all go by these declarations.
type metric struct {
	name string // of Prometheus
	// otel is that of OpenTelemetry. It is such that Prometheus, which takes
	// OTLP too, makes the same name of it again.
	otel string
	unit string // UCUM, as OpenTelemetry has it
	kind kind
	help string
	// labels are those that come next to those of the endpoint or, for metrics of
	// no endpoint, all there are.
	labels []string
}

// endpointLabels are the labels of every metric of an endpoint.
var endpointLabels = []string{"address", "container", "k8s_namespace", "k8s_pod", "k8s_workload", "netns", "port", "process", "side", "unit"}

// endpointMetric is a metric that each endpoint has.
type endpointMetric struct {
	metric
	// values gives the value, or one for each value of the label.
	values func(s *sums, give func(label string, value float64))
	// values of a histogram.
	histogram func(s *sums) *observe.Histogram
	bounds    []float64
}

// one is for metrics without a label of their own.
func one(f func(s *sums) float64) func(*sums, func(string, float64)) {
	return func(s *sums, give func(string, float64)) { give("", f(s)) }
}

// count is for those that count something.
func count(f func(s *sums) uint64) func(*sums, func(string, float64)) {
	return func(s *sums, give func(string, float64)) { give("", float64(f(s))) }
}

// unknownPart is the part of Server time that was not looked into.
const unknownPart = "unknown"

// endpointMetrics are in the order of their names.
var endpointMetrics = []endpointMetric{
	{metric: metric{name: "slowray_ack_delay_seconds_total", otel: "slowray.ack_delay", unit: "s",
		help: "Time by which clients acknowledged late what they had. Nobody waited for it: it is no part of any request's time."},
		values: one(func(s *sums) float64 { return s.partNS[observe.AckDelay] / 1e9 })},
	{metric: metric{name: "slowray_connections_opened_total", otel: "slowray.connections.opened", unit: "{connection}",
		help: "Connections opened."},
		values: count(func(s *sums) uint64 { return s.connections })},
	{metric: metric{name: "slowray_handshake_seconds_total", otel: "slowray.handshake", unit: "s",
		help: "Time of all TCP handshakes, called side only."},
		values: one(func(s *sums) float64 { return s.handshakeNS / 1e9 })},
	{metric: metric{name: "slowray_http_responses_total", otel: "slowray.http.responses", unit: "{response}", labels: []string{"class"},
		help: "Unencrypted HTTP/1 responses by class of their status, estimated where records are sampled."},
		values: func(s *sums, give func(string, float64)) {
			for i, n := range s.classes {
				if n > 0 {
					give(classNames[i], float64(n))
				}
			}
		}},
	{metric: metric{name: "slowray_received_bytes_total", otel: "slowray.received", unit: "By",
		help: "Payload received: of requests served, of responses called."},
		values: count(func(s *sums) uint64 { return s.bytesIn })},
	{metric: metric{name: "slowray_request_duration_seconds", otel: "slowray.request.duration", unit: "s", kind: histogram,
		help: "Wall time of requests; counts are exact or estimated by sampling, a time is shown within 1.6 % of what it was."},
		histogram: func(s *sums) *observe.Histogram { return &s.total }, bounds: durationBounds},
	{metric: metric{name: "slowray_request_errors_total", otel: "slowray.request.errors", unit: "{request}",
		help: "Requests known to be answered with an error."},
		values: count(func(s *sums) uint64 { return s.errors })},
	{metric: metric{name: "slowray_request_ledger_seconds_total", otel: "slowray.request.ledger", unit: "s", labels: []string{"part"},
		help: "Time of all requests by part of the ledger; the parts add up to the time of the requests."},
		values: func(s *sums, give func(string, float64)) {
			for p := range observe.AckDelay {
				give(p.String(), s.partNS[p]/1e9)
			}
		}},
	{metric: metric{name: "slowray_request_server_seconds_total", otel: "slowray.request.server", unit: "s", labels: []string{"part"},
		help: "The server part of the ledger by what the threads did; the parts add up to it. A part that never took time has no series."},
		values: func(s *sums, give func(string, float64)) {
			for p, ns := range s.serverNS {
				if ns > 0 {
					give(serverPartName(observe.ServerPart(p)), ns/1e9)
				}
			}
			if s.unsplit > 0 {
				give(unknownPart, s.unsplit/1e9)
			}
		}},
	{metric: metric{name: "slowray_requests_in_progress", otel: "slowray.requests.in_progress", unit: "{request}", kind: gauge,
		help: "Requests that were going on for over a second, in the last second with traffic."},
		values: count(func(s *sums) uint64 { return s.unfinished })},
	{metric: metric{name: "slowray_requests_overlapped_total", otel: "slowray.requests.overlapped", unit: "{request}",
		help: "Requests that were pipelined or multiplexed: their time is counted, and not split further."},
		values: count(func(s *sums) uint64 { return s.overlapped })},
	{metric: metric{name: "slowray_requests_total", otel: "slowray.requests", unit: "{request}",
		help: "Requests that ended, exactly, also those that have no record of their own."},
		values: count(func(s *sums) uint64 { return s.requests })},
	{metric: metric{name: "slowray_requests_unanswered_total", otel: "slowray.requests.unanswered", unit: "{request}",
		help: "Requests whose connection was closed before the first byte of an answer."},
		values: count(func(s *sums) uint64 { return s.unanswered })},
	{metric: metric{name: "slowray_round_trip_time_min_seconds", otel: "slowray.round_trip_time.min", unit: "s", kind: gauge,
		help: "Least round trip of the connections in the last second with traffic."},
		values: func(s *sums, give func(string, float64)) {
			if s.minRTT > 0 {
				give("", float64(s.minRTT)/1e9)
			}
		}},
	{metric: metric{name: "slowray_round_trip_time_seconds", otel: "slowray.round_trip_time", unit: "s", kind: histogram,
		help: "Round trips, one for each request where it can be known; counts and times as of slowray_request_duration_seconds."},
		histogram: func(s *sums) *observe.Histogram { return &s.rtt }, bounds: rttBounds},
	{metric: metric{name: "slowray_sent_bytes_total", otel: "slowray.sent", unit: "By",
		help: "Payload sent, each byte once: of responses served, of requests called."},
		values: count(func(s *sums) uint64 { return s.bytesOut })},
	{metric: metric{name: "slowray_syn_retransmits_total", otel: "slowray.syn_retransmits", unit: "{segment}",
		help: "SYNs (served side: SYN-ACKs) retransmitted."},
		values: count(func(s *sums) uint64 { return s.synRetrans })},
	{metric: metric{name: "slowray_tcp_retransmitted_segments_total", otel: "slowray.tcp.retransmitted_segments", unit: "{segment}",
		help: "Segments retransmitted."},
		values: count(func(s *sums) uint64 { return s.retrans })},
	{metric: metric{name: "slowray_tcp_segments_total", otel: "slowray.tcp.segments", unit: "{segment}",
		help: "Segments sent with data, retransmissions included."},
		values: count(func(s *sums) uint64 { return s.segments })},
}

// serverPartName is the name of a part without the "server." that all have.
func serverPartName(p observe.ServerPart) string {
	return p.String()[len(observe.Server.String())+1:]
}

// declared are all metrics of slowray, those of endpoints first.
func declared() []*metric {
	var all []*metric
	for i := range endpointMetrics {
		all = append(all, &endpointMetrics[i].metric)
	}
	for i := range hostMetrics {
		all = append(all, &hostMetrics[i].metric)
	}
	return all
}
