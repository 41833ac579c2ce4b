package export

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/store"
)

// maxText bounds texts that are no labels, in bytes: what a request asked for,
// the words of a finding.
const maxText = 1024

// spans gives requests as spans, those of a service together.
func (x *Exporter) spans(requests []store.Request) proto.Message {
	return x.spansOf(requests, func(int, *tracepb.Span) {})
}

// spansOf also hands each span out, with the number of its request.
func (x *Exporter) spansOf(requests []store.Request, each func(i int, s *tracepb.Span)) *tracepb.TracesData {
	data := &tracepb.TracesData{}
	of := map[observe.Identity]*tracepb.ScopeSpans{}
	for i := range requests {
		r := &requests[i]
		p := observe.Identity{Comm: r.Process.Comm, Container: r.Process.Container, ContainerName: r.Process.ContainerName, Unit: r.Process.Unit, Workload: r.Process.Workload}
		into := of[p]
		if into == nil {
			into = &tracepb.ScopeSpans{Scope: x.scope()}
			of[p] = into
			data.ResourceSpans = append(data.ResourceSpans, &tracepb.ResourceSpans{
				Resource:   x.program(&p),
				ScopeSpans: []*tracepb.ScopeSpans{into},
			})
		}
		s := span(r)
		each(i, s)
		into.Spans = append(into.Spans, s)
	}
	return data
}

// program is a program of the host as a resource.
func (x *Exporter) program(p *observe.Identity) *resourcepb.Resource {
	return &resourcepb.Resource{Attributes: append(attributes("host.name", label(x.opt.Host), "process.executable.name", label(p.Comm), "slowray.unit", label(p.Unit)),
		serviceAttributes(p)...)}
}

// serviceAttributes are whose program it is, by OpenTelemetry's semantic conventions, the
// same in every signal.
func serviceAttributes(p *observe.Identity) []*commonpb.KeyValue {
	return append(attributes("service.name", serviceName(p), "container.id", label(p.Container), "container.name", label(cmp.Or(p.Workload.Container, p.ContainerName))),
		workloadAttributes("", &p.Workload)...)
}

// workloadAttributes are who somebody is in Kubernetes, by OpenTelemetry's semantic
// conventions for resources.
func workloadAttributes(prefix string, w *observe.Workload) []*commonpb.KeyValue {
	if *w == (observe.Workload{}) {
		return nil
	}
	list := attributes(
		prefix+"k8s.namespace.name", bounded(w.Namespace, maxK8s), prefix+"k8s.pod.name", bounded(w.Pod, maxK8s), prefix+"k8s.container.name", bounded(w.Container, maxK8s),
		prefix+"k8s.node.name", bounded(w.Node, maxK8s), prefix+"cloud.availability_zone", bounded(w.Zone, maxK8s))
	if w.Service != "" {
		list = append(list, attributes(prefix+"k8s.service.name", bounded(w.Service, maxK8s))...)
	}
	if kind, ok := k8sKinds[w.Kind]; ok {
		list = append(list, attributes(prefix+"k8s."+kind+".name", bounded(w.Name, maxK8s))...)
	}
	return list
}

// maxK8s bounds the name of an object of Kubernetes (RFC 1123), in bytes.
const maxK8s = 253

// k8sKinds are the kinds whose names have an attribute of their own.
var k8sKinds = map[string]string{"Deployment": "deployment", "StatefulSet": "statefulset", "DaemonSet": "daemonset", "ReplicaSet": "replicaset", "Job": "job", "CronJob": "cronjob", "Service": "service"}

// spanFields are the numbers of a request that are attributes of its span, by the names
// of OpenTelemetry where that has some.
var (
	spanFields = schema.Fields("pid", "netns", "seq", "bytes_in", "bytes_out", "retrans", "http_status", "rtt_us", "min_rtt_us",
		"connection_dns_us", "connection_connect_us", "connection_idle_us")
	semanticKeys = map[string]string{"pid": "process.pid", "http_status": "http.response.status_code"}
)

// span is one request; times of its ledger are µs, as in
// schema/request.schema.json, and parts that took none are left out.
func span(r *store.Request) *tracepb.Span {
	start := uint64(max(r.StartNS, 0))
	s := &tracepb.Span{
		Name: spanName(r), Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: start, EndTimeUnixNano: start + uint64(max(r.TotalNS(), 0)),
		Status: &tracepb.Status{},
	}
	server, client := r.Local, r.Peer
	if r.Side == observe.Called {
		s.Kind = tracepb.Span_SPAN_KIND_CLIENT
		server, client = r.Peer, r.Local
	}
	join(s, r)
	list := attributes("network.transport", "tcp", "slowray.side", r.Side.String(), "slowray.why", r.Why.String(),
		"slowray.label", bounded(r.Label, maxText))
	list = append(list, protocolAttributes(r)...)
	if server.IsValid() && client.IsValid() {
		family := "ipv6"
		if server.Addr().Unmap().Is4() {
			family = "ipv4"
		}
		list = append(list, attribute("network.type", textValue(family)),
			attribute("server.address", textValue(label(server.Addr().Unmap().String()))), attribute("server.port", intValue(int64(server.Port()))),
			attribute("client.address", textValue(label(client.Addr().Unmap().String()))), attribute("client.port", intValue(int64(client.Port()))))
	}
	list = append(list, workloadAttributes("slowray.peer.", &r.PeerWorkload)...)
	micros := func(key string, ns int64) {
		if ns != 0 {
			list = append(list, attribute(key, numberValue(float64(ns)/1e3)))
		}
	}
	for i := range spanFields {
		f := &spanFields[i]
		key, semantic := semanticKeys[f.Name]
		if !semantic {
			key = "slowray." + f.Name
		}
		if n := f.Int(r); f.Kind == schema.Micros {
			micros(key, n)
		} else if n != 0 {
			list = append(list, attribute(key, intValue(n)))
		}
	}
	for p, ns := range r.Ledger {
		micros("slowray.ledger_us."+observe.Part(p).String(), ns)
	}
	if r.Followed {
		for p, ns := range r.Split {
			micros("slowray.ledger_us."+observe.ServerPart(p).String(), ns)
		}
	}
	if flags := r.Flags.Names(); len(flags) > 0 {
		list = append(list, attribute("slowray.flags", listValue(flags)))
	}
	s.Attributes = list
	if r.Status == observe.StatusError || r.Why == store.Failed {
		s.Status.Code = tracepb.Status_STATUS_CODE_ERROR
	}
	s.Events = moments(r, start)
	return s
}

// moments are those of a request that are known beyond its beginning and end.
func moments(r *store.Request, start uint64) []*tracepb.Span_Event {
	var list []*tracepb.Span_Event
	event := func(name string, after int64) {
		if after > 0 && after <= r.TotalNS() {
			list = append(list, &tracepb.Span_Event{Name: name, TimeUnixNano: start + uint64(after)})
		}
	}
	if r.Flags&observe.FlagOverlapped == 0 && r.Side == observe.Served {
		event("read by the application", r.Ledger[observe.AcceptWait]+r.Ledger[observe.TLS]+r.Ledger[observe.Upload]+r.Ledger[observe.RecvWait])
	}
	event("first byte of the response", r.FirstByte)
	return list
}

// httpMethods are those whose label has the form of HTTP.
var httpMethods = map[string]bool{
	http.MethodGet: true, http.MethodHead: true, http.MethodPost: true, http.MethodPut: true, http.MethodPatch: true,
	http.MethodDelete: true, http.MethodConnect: true, http.MethodOptions: true, http.MethodTrace: true,
}

// spanName is the first word of what was asked for: there may be as many labels
// as there are requests.
func spanName(r *store.Request) string {
	word, _, _ := strings.Cut(bounded(r.Label, maxText), " ")
	const longest = 32
	if word == "" || len(word) > longest {
		return "request " + r.Side.String()
	}
	if httpMethods[strings.ToUpper(word)] {
		return strings.ToUpper(word)
	}
	return word
}

// randomID is what a trace or a span is known by; nobody has to guess it.
func randomID(n int) []byte {
	id := make([]byte, 0, n)
	for len(id) < n {
		id = binary.BigEndian.AppendUint64(id, max(rand.Uint64(), 1)) // all zeros is no id
	}
	return id
}

// logs gives beginnings and ends of findings as log records.
func (x *Exporter) logs(found []foundAt) proto.Message {
	now := uint64(x.opt.Now().UnixNano())
	records := make([]*logspb.LogRecord, len(found))
	for i := range found {
		f := &found[i]
		r := &logspb.LogRecord{
			TimeUnixNano: uint64(max(f.at.UnixNano(), 0)), ObservedTimeUnixNano: now, EventName: "slowray.finding.begin",
			SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_WARN, SeverityText: "WARN",
			Body: textValue(bounded(findingText(f), 2*maxText)), Attributes: findingAttributes(f),
		}
		if f.ended {
			r.EventName = "slowray.finding.end"
		}
		if f.ended || f.Role == cause.RoleConsequence {
			r.SeverityNumber, r.SeverityText = logspb.SeverityNumber_SEVERITY_NUMBER_INFO, "INFO"
		}
		records[i] = r
	}
	return &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource: x.itself(), ScopeLogs: []*logspb.ScopeLogs{{Scope: x.scope(), LogRecords: records}},
	}}}
}

func findingText(f *foundAt) string {
	if f.ended {
		return fmt.Sprintf("no longer: %s", f.Title)
	}
	if f.Impact.Text == "" {
		return f.Title
	}
	return f.Title + ": " + f.Impact.Text
}

func findingAttributes(f *foundAt) []*commonpb.KeyValue {
	s := &f.Subject
	follows := ""
	if f.ConsequenceOf != nil {
		follows = string(*f.ConsequenceOf)
	}
	list := attributes(
		"slowray.cause", label(string(f.Cause)), "slowray.role", label(string(f.Role)), "slowray.verdict", label(string(f.Verdict)),
		"slowray.consequence_of", label(follows), "slowray.subject.kind", label(s.Kind), "slowray.subject.process", label(s.Comm),
		"slowray.subject.address", label(s.Addr), "slowray.subject.container", label(s.Container), "slowray.subject.interface", label(s.Interface),
		"slowray.subject.rule", bounded(s.Rule, maxText), "slowray.subject.path", bounded(s.Path, maxText),
		"slowray.impact.of", label(f.Impact.Of), "slowray.fix", bounded(f.Fix.Text, maxText))
	for key, n := range map[string]int64{
		"slowray.subject.netns": int64(s.NetNS), "slowray.subject.pid": int64(s.PID), "slowray.subject.port": int64(s.Port), "slowray.windows": int64(f.windows),
	} {
		if n != 0 {
			list = append(list, attribute(key, intValue(n)))
		}
	}
	list = append(list, attribute("slowray.impact.share", numberValue(f.Impact.Share)))
	var evidence []string
	const most = 30
	for _, e := range f.Evidence[:min(most, len(f.Evidence))] {
		text := fmt.Sprintf("%s: %s (%s)", e.Fact, figure.Evidence(e.Value, e.Limit, e.Unit), e.Source)
		evidence = append(evidence, bounded(text, maxText))
	}
	if len(evidence) > 0 {
		list = append(list, attribute("slowray.evidence", listValue(evidence)))
	}
	return list
}
