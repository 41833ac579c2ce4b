// Package export shows what slowray record sees to the monitoring that is there
// already: Prometheus scrapes it, OpenTelemetry is sent it.
//
// In: what each endpoint did in each second, findings, slow requests, losses and
// slowray's own cost. Out: an http.Handler for /metrics, and OTLP over HTTP or
// gRPC. Everything it is given is added up in bounded memory; nobody who gives
// it something ever waits for a scrape, for the network or for a collector.
//
// It never judges, and shows no addresses of clients and nothing of a payload.
// docs/export.md lists the metrics.
package export
