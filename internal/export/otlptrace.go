package export

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// join gives a span its place: in the trace that the request carried, under the span that
// sent it, or in that of the thread that did or that answered, where that was sampled. Of a trace that was not sampled there is no other span
// anywhere: then the span is a trace of its own, as that of a request without a trace, and
// links to the one that the request carried.
func join(s *tracepb.Span, r *store.Request) {
	t := &r.Trace
	if !t.Known() {
		s.TraceId, s.SpanId = randomID(16), randomID(8)
		return
	}
	s.SpanId = hopID(r, r.Side)
	if t.Flags&observe.TraceSampled == 0 {
		s.TraceId = randomID(16)
		s.Links = append(s.Links, &tracepb.Span_Link{TraceId: t.ID[:], SpanId: t.Parent[:], Flags: t.Flags})
		return
	}
	s.TraceId, s.ParentSpanId, s.Flags = t.ID[:], t.Parent[:], t.Flags
	if r.Side == observe.Served && r.Flags&observe.FlagThreadContext == 0 {
		// The same request as its caller's end saw it, where slowray runs there too: under
		// another span where each end has that of its own thread.
		s.Links = append(s.Links, &tracepb.Span_Link{TraceId: t.ID[:], SpanId: hopID(r, observe.Called), Flags: t.Flags,
			Attributes: attributes("slowray.link", "called")})
	}
}

// hopID is the number of the span of an end of a request. It follows from the trace, the
// connection and the request's number there, so that both ends of a connection know that of
// the other, as far as no address is translated between them, and a span that is sent twice
// is the same one.
func hopID(r *store.Request, side observe.Side) []byte {
	client, server := r.Peer, r.Local
	if r.Side == observe.Called {
		client, server = server, client
	}
	b := append([]byte("slowray hop\x00"), byte(side))
	b = append(append(b, r.Trace.ID[:]...), r.Trace.Parent[:]...)
	for _, end := range [...]netip.AddrPort{client, server} {
		addr := end.Addr().As16() // IPv4 and the same mapped into IPv6 are one
		b = binary.BigEndian.AppendUint16(append(b, addr[:]...), end.Port())
	}
	b = binary.BigEndian.AppendUint32(b, r.Seq)
	sum := sha256.Sum256(b)
	return sum[:8]
}

// protocolAttributes are those of OpenTelemetry's semantic conventions for what was asked
// for, as far as the label tells.
func protocolAttributes(r *store.Request) []*commonpb.KeyValue {
	method, path, ok := strings.Cut(bounded(r.Label, maxText), " ")
	if !ok || !httpMethods[method] {
		return nil
	}
	path, code, rpc := strings.Cut(path, " gRPC ")
	version := "1.1"
	if r.Flags&observe.FlagMultiplexed != 0 {
		version = "2"
	}
	list := attributes("network.protocol.name", "http", "network.protocol.version", version, "http.request.method", method)
	if strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "…") { // the whole path
		list = append(list, attributes("url.path", path)...)
	}
	if n, err := strconv.ParseUint(code, 10, 16); rpc && err == nil {
		status := strconv.FormatUint(n, 10)
		if n < uint64(len(grpcCodes)) {
			status = grpcCodes[n]
		}
		list = append(list, attributes("rpc.system.name", "grpc", "rpc.method", strings.TrimSuffix(strings.TrimPrefix(path, "/"), "…"), "rpc.response.status_code", status)...)
	}
	return list
}

// grpcCodes are the names of the status codes of gRPC (doc/statuscodes.md of grpc), as
// OpenTelemetry's semantic conventions 1.45 want them.
var grpcCodes = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}
