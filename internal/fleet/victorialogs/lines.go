package victorialogs

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/store"
)

// maxText is how much of a text is sent, bytes.
const maxText = 4 << 10

// lines makes lines of JSON in memory that is used again. A field that is empty, or a
// number that is 0, is left out, but for those that queries count on.
type lines struct {
	b     []byte
	first bool
}

func (l *lines) begin() { l.b, l.first = append(l.b, '{'), true }
func (l *lines) end()   { l.b = append(l.b, '}', '\n') }

func (l *lines) comma() {
	if !l.first {
		l.b = append(l.b, ',')
	}
	l.first = false
}

// key begins a field whose name is one of ours.
func (l *lines) key(name string) {
	l.comma()
	l.b = append(l.b, '"')
	l.b = append(l.b, name...)
	l.b = append(l.b, '"', ':')
}

// number writes a number as text: VictoriaLogs keeps all values as text, and tells
// numbers by how they look.
func (l *lines) number(name string, n int64) {
	l.key(name)
	l.b = append(l.b, '"')
	l.b = strconv.AppendInt(l.b, n, 10)
	l.b = append(l.b, '"')
}

func (l *lines) some(name string, n int64) {
	if n != 0 {
		l.number(name, n)
	}
}

func (l *lines) text(name, s string) {
	if s == "" {
		return
	}
	l.key(name)
	l.b = appendText(l.b, s)
}

// appendText appends a JSON string of bounded length. What it is made of comes from
// the watched host.
func appendText(b []byte, s string) []byte {
	if len(s) > maxText {
		s = s[:maxText]
	}
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			b = append(b, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case r == utf8.RuneError && size == 1:
			b = append(b, "\ufffd"...)
		default:
			b = append(b, s[i:i+size]...)
		}
		i += size
	}
	return append(b, '"')
}

func (l *lines) time(us int64) {
	l.key("_time")
	l.b = append(l.b, '"')
	l.b = time.UnixMicro(us).UTC().AppendFormat(l.b, "2006-01-02T15:04:05.000000Z")
	l.b = append(l.b, '"')
}

func (l *lines) addr(name, port string, a netip.AddrPort) {
	if a.Addr().IsValid() {
		l.key(name)
		l.b = append(l.b, '"')
		l.b = a.Addr().WithZone("").AppendTo(l.b) // a zone is any text
		l.b = append(l.b, '"')
	}
	l.some(port, int64(a.Port()))
}

// head is what all records have. The host, the stream and the service are those by
// which VictoriaLogs files its lines.
func (l *lines) head(h *fleet.Host, s fleet.Stream, p fleet.Position, us int64) {
	l.begin()
	l.time(us)
	l.text("host", h.Name)
	l.text("stream", string(s))
	l.text("history", h.ID)
	l.number("position", int64(p))
	l.labels(h)
}

// labels are what a person called the host: their names are any text.
func (l *lines) labels(h *fleet.Host) {
	for name, value := range h.Labels {
		if value == "" {
			continue
		}
		l.comma()
		l.b = append(appendText(l.b, "label."+name), ':')
		l.b = appendText(l.b, value)
	}
}

var partNames, splitNames = func() (parts [observe.NumParts]string, split [observe.NumServerParts]string) {
	for p := range parts {
		parts[p] = "ledger." + observe.Part(p).String() + "_us"
	}
	for p := range split {
		split[p] = "ledger." + observe.ServerPart(p).String() + "_us"
	}
	return parts, split
}()

// The fields of a request in a line: before its parts, and after them.
var (
	headFields = schema.Fields("comm", "unit", "container_name", "k8s_namespace", "k8s_pod", "k8s_workload", "k8s_node", "pid", "netns", "why", "weight", "seq", "status", "http_status", "label", "trace_id", "parent_span_id", "total_us")
	tailFields = schema.Fields("bytes_in", "bytes_out", "retrans", "rtt_us", "min_rtt_us")
)

func (l *lines) fields(list []schema.Field, r *store.Request) {
	for i := range list {
		f := &list[i]
		switch {
		case f.Name == "container_name":
			l.text("container", f.Text(r))
		case f.Kind == schema.Text:
			l.text(f.Name, f.Text(r))
		case f.Kind == schema.Enum:
			l.text(f.Name, f.EnumName(r))
		case f.Name == "weight" || f.Name == "total_us": // queries count on them
			l.number(f.Name, f.Value(r))
		default:
			l.some(f.Name, f.Value(r))
		}
	}
}

// request appends the line of a request.
func (l *lines) request(h *fleet.Host, p fleet.Position, r *store.Request) {
	l.head(h, fleet.Requests, p, r.StartNS/1000)
	endpoint, other := r.Local, r.Peer
	if r.Side == observe.Called {
		endpoint, other = other, endpoint
	}
	service := fleet.Service(r.Side, &r.Process, int(endpoint.Port()))
	l.text("service", service)
	l.text("side", r.Side.String())
	l.addr("addr", "port", endpoint)
	l.addr("other_addr", "other_port", other)
	l.key("_msg")
	l.b = appendText(l.b, service)
	l.b = l.b[:len(l.b)-1] // the closing quote: more follows
	l.b = append(l.b, ' ')
	l.b = strconv.AppendInt(l.b, r.TotalNS()/1000, 10)
	l.b = append(l.b, " µs "...)
	l.b = append(append(l.b, r.Status.String()...), '"')
	l.fields(headFields, r)
	for i, ns := range r.Ledger {
		l.some(partNames[i], ns/1000)
	}
	for i, ns := range r.Split {
		l.some(splitNames[i], ns/1000)
	}
	l.fields(tailFields, r)
	if r.Flags != 0 {
		for _, name := range r.Flags.Names() {
			l.text("flag."+name, "1")
		}
	}
	l.end()
}

// second appends the line of what an endpoint did in a second.
func (l *lines) second(h *fleet.Host, p fleet.Position, s *store.Second) {
	e := &s.Endpoint
	l.head(h, fleet.Seconds, p, s.At*1e6)
	side := observe.Served
	if e.Side == observe.Called.String() {
		side = observe.Called
	}
	service := fleet.Service(side, &s.Process, e.Port)
	l.text("service", service)
	l.text("side", e.Side)
	l.text("addr", e.Addr)
	l.some("port", int64(e.Port))
	l.text("_msg", service+" "+strconv.FormatUint(e.Requests, 10)+" requests in a second")
	l.text("comm", s.Process.Comm)
	l.text("unit", s.Process.Unit)
	l.text("container", s.Process.ContainerName)
	w := &s.Process.Workload
	l.text("k8s_namespace", w.Namespace)
	l.text("k8s_pod", w.Pod)
	l.text("k8s_workload", w.Name)
	l.text("k8s_node", w.Node)
	l.some("pid", int64(e.PID))
	l.some("netns", int64(e.NetNS))
	l.number("requests", int64(e.Requests))
	l.number("ok", int64(e.OK))
	l.number("errors", int64(e.Errors+e.Unanswered))
	l.some("bytes_in", int64(e.BytesIn))
	l.some("bytes_out", int64(e.BytesOut))
	l.some("segments", int64(e.Segments))
	l.some("retrans", int64(e.Retrans))
	l.some("connections", int64(e.Connections))
	l.some("syn_retrans", int64(e.SynRetrans))
	l.some("min_rtt_us", e.MinRTT/1000)
	var total int64
	for part := range observe.NumParts {
		ns := e.Parts[part.String()].SumNS
		l.some(partNames[part], ns/1000)
		if part != observe.AckDelay {
			total += ns
		}
	}
	l.number("total_us", total/1000)
	if e.Split != nil {
		for part := range observe.NumServerParts {
			l.some(splitNames[part], e.Split.Parts[part.String()].SumNS/1000)
		}
	}
	l.some("p50_us", e.Total.Quantile(0.5)/1000)
	l.some("p99_us", e.Total.Quantile(0.99)/1000)
	l.some("max_us", e.Total.Max()/1000)
	// The histogram, as "us:n us:n": adding n of equal us merges it.
	if e.Total.Count() > 0 {
		l.key("total_hist")
		l.b = append(l.b, '"')
		for ns, n := range e.Total.Buckets() {
			if l.b[len(l.b)-1] != '"' {
				l.b = append(l.b, ' ')
			}
			l.b = strconv.AppendFloat(l.b, float64(ns)/1000, 'f', -1, 64)
			l.b = append(l.b, ':')
			l.b = strconv.AppendUint(l.b, n, 10)
		}
		l.b = append(l.b, '"')
	}
	l.end()
}

// finding appends the line of a finding.
func (l *lines) finding(h *fleet.Host, p fleet.Position, f *store.Finding) {
	l.head(h, fleet.Findings, p, f.Start.UnixMicro())
	l.text("service", f.Subject.Comm)
	l.text("_msg", f.Title)
	l.text("cause", string(f.Cause))
	l.text("role", string(f.Role))
	l.text("verdict", string(f.Verdict))
	if f.ConsequenceOf != nil {
		l.text("consequence_of", string(*f.ConsequenceOf))
	}
	l.text("share", strconv.FormatFloat(f.Impact.Share, 'g', 4, 64))
	l.text("of", f.Impact.Of)
	l.text("text", f.Impact.Text)
	l.text("until", f.End.UTC().Format(time.RFC3339Nano))
	if all, err := json.Marshal(&f.Finding); err == nil {
		l.text("json", string(all))
	}
	l.end()
}

// greeting appends the line of what is known of a host.
func (l *lines) greeting(h *fleet.Host, now time.Time) {
	l.begin()
	l.time(now.UnixMicro())
	l.text("host", h.Name)
	l.text("stream", "hosts")
	l.text("history", h.ID)
	l.text("_msg", h.Name+" ships")
	l.text("kernel", h.Kernel)
	l.number("cpus", int64(h.CPUs))
	l.text("version", h.Version)
	if list, err := json.Marshal(h.Addresses); err == nil && len(h.Addresses) > 0 {
		l.text("addresses", string(list))
	}
	if list, err := json.Marshal(h.Programs); err == nil && len(h.Programs) > 0 {
		l.text("programs", string(list))
	}
	l.labels(h)
	l.end()
}
