package export

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/store"
)

// receiver is a collector: it decodes what comes, by HTTP and by gRPC.
type receiver struct {
	t      testing.TB
	url    string
	mu     sync.Mutex
	answer func(path string) (status int, body []byte) // nil: all is well
	header http.Header
	calls  int

	metrics []*metricspb.ResourceMetrics
	spans   []*tracepb.ResourceSpans
	logs    []*logspb.ResourceLogs
	profile []pprofile.Profiles
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{t: t}
	s := httptest.NewUnstartedServer(r)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		r.t.Error(err)
	}
	isGRPC := q.Header.Get("Content-Type") == "application/grpc+proto"
	if isGRPC {
		if q.ProtoMajor != 2 || len(body) < 5 || body[0] != 1 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
			r.t.Errorf("not a gRPC message: %s, %d bytes", q.Proto, len(body))
			return
		}
		body = body[5:]
	} else if q.Header.Get("Content-Type") != "application/x-protobuf" || q.Header.Get("Content-Encoding") != "gzip" {
		r.t.Errorf("headers %v", q.Header)
	}
	zip, err := gzip.NewReader(strings.NewReader(string(body)))
	if err == nil {
		body, err = io.ReadAll(zip)
	}
	if err != nil {
		r.t.Errorf("gzip: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.header = q.Header
	status, answer := 200, []byte(nil)
	if r.answer != nil {
		status, answer = r.answer(q.URL.Path)
	}
	if status == 200 {
		r.take(q.URL.Path, body)
	}
	if !isGRPC {
		w.WriteHeader(status)
		w.Write(answer)
		return
	}
	w.Header().Set("Content-Type", "application/grpc+proto")
	code := "0"
	if status != 200 {
		code = fmt.Sprint(status)
	} else {
		w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(answer))), answer...))
	}
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
	w.WriteHeader(200)
}

// take decodes a message.
func (r *receiver) take(path string, body []byte) {
	var err error
	switch path {
	case "/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export":
		var m metricspb.MetricsData
		err = proto.Unmarshal(body, &m)
		r.metrics = append(r.metrics, m.ResourceMetrics...)
	case "/v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export":
		var m tracepb.TracesData
		err = proto.Unmarshal(body, &m)
		r.spans = append(r.spans, m.ResourceSpans...)
	case "/v1/logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export":
		var m logspb.LogsData
		err = proto.Unmarshal(body, &m)
		r.logs = append(r.logs, m.ResourceLogs...)
	case "/v1development/profiles", "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export":
		m := pprofileotlp.NewExportRequest() // the Collector's own reading
		err = m.UnmarshalProto(body)
		r.profile = append(r.profile, m.Profiles())
	default:
		r.t.Errorf("path %s", path)
	}
	if err != nil {
		r.t.Errorf("%s: %v", path, err)
	}
}

// does waits until the receiver has what the test is about.
func (r *receiver) does(what string, f func() bool) {
	r.t.Helper()
	for range 1000 {
		r.mu.Lock()
		done := f()
		r.mu.Unlock()
		if done {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("not after 10 s: %s", what)
}

func (r *receiver) allSpans() (list []*tracepb.Span) {
	for _, of := range r.spans {
		for _, s := range of.ScopeSpans {
			list = append(list, s.Spans...)
		}
	}
	return list
}

func (r *receiver) allLogs() (list []*logspb.LogRecord) {
	for _, of := range r.logs {
		for _, s := range of.ScopeLogs {
			list = append(list, s.LogRecords...)
		}
	}
	return list
}

// pushing sends what x sees to a receiver, quickly, until the test ends.
func pushing(t testing.TB, x *Exporter, url string, change func(*PushOptions)) (stop func()) {
	t.Helper()
	opt := PushOptions{URL: url, Every: 50 * time.Millisecond, soon: 10 * time.Millisecond, firstWait: 10 * time.Millisecond, lastWait: 40 * time.Millisecond}
	if change != nil {
		change(&opt)
	}
	run, err := x.Push(opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// slowRequest is one of 212 ms to nginx.
func slowRequest() *store.Request {
	r := &store.Request{Why: store.Slow, Process: observe.Identity{Comm: "nginx", Unit: "nginx.service"}}
	r.Request = observe.Request{
		Side: observe.Served, StartNS: 1_790_000_000_000_000_000, NetNS: 4026531840, PID: 100, Seq: 7, Status: observe.StatusOK, HTTP: 200,
		Local: netip.MustParseAddrPort("[::ffff:127.0.0.1]:80"), Peer: netip.MustParseAddrPort("10.1.2.3:40000"),
		Label: "GET /search?q=1", FirstByte: 200_000_000, Followed: true, Retrans: 1, RTTNS: 80_000,
	}
	r.Ledger[observe.RecvWait], r.Ledger[observe.Server], r.Ledger[observe.Network] = 1_000_000, 199_000_000, 12_000_000
	r.Split[observe.ServerDisk] = 199_000_000
	return r
}

// attributesOf are those of a list as text.
func attributesOf(list []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[kv.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			out[kv.Key] = fmt.Sprint(v.DoubleValue)
		default:
			out[kv.Key] = fmt.Sprint(kv.Value)
		}
	}
	return out
}

// TestPush: metrics, a slow request and a finding arrive as they are, by HTTP
// and by gRPC.
func TestPush(t *testing.T) {
	for _, scheme := range []string{"http", "grpc"} {
		t.Run(scheme, func(t *testing.T) {
			to := newReceiver(t)
			x := fed(1, 2, Options{Version: "v1", Host: "web1"})
			pushing(t, x, strings.Replace(to.url, "http", scheme, 1), func(o *PushOptions) { o.Headers = "authorization=Bearer%20x, x-org=7" })
			x.Request(slowRequest())
			x.Request(&store.Request{Why: store.Sampled})
			own := slowRequest()
			own.PID = os.Getpid()
			x.Request(own)
			x.Window(windowOf(findingOf("blocked-on-disk", "nginx", 80)))
			to.does("all three signals", func() bool { return len(to.spans) > 0 && len(to.allLogs()) >= 2 && len(to.metrics) > 0 })
			to.mu.Lock()
			defer to.mu.Unlock()
			if to.header.Get("Authorization") != "Bearer x" || to.header.Get("X-Org") != "7" {
				t.Errorf("headers %v", to.header)
			}
			checkSpan(t, to)
			checkLogs(t, to)
			checkMetrics(t, to)
		})
	}
}

func checkSpan(t *testing.T, to *receiver) {
	t.Helper()
	if n := len(to.allSpans()); n != 1 {
		t.Fatalf("%d spans, want 1: sampled requests are not sent, nor those of slowray itself", n)
	}
	s := to.allSpans()[0]
	if s.Name != "GET" || s.Kind != tracepb.Span_SPAN_KIND_SERVER || s.EndTimeUnixNano-s.StartTimeUnixNano != 212_000_000 || len(s.TraceId) != 16 || len(s.SpanId) != 8 {
		t.Errorf("span %v", s)
	}
	have := attributesOf(s.Attributes)
	for key, want := range map[string]string{
		"slowray.label": "GET /search?q=1", "server.address": "127.0.0.1", "server.port": "80", "client.address": "10.1.2.3",
		"slowray.ledger_us.server": "199000", "slowray.ledger_us.server.blocked.disk": "199000", "slowray.ledger_us.network": "12000",
		"slowray.why": "slow", "http.response.status_code": "200", "slowray.rtt_us": "80",
	} {
		if have[key] != want {
			t.Errorf("%s is %q, want %q", key, have[key], want)
		}
	}
	if len(s.Events) != 2 || s.Events[1].TimeUnixNano != s.StartTimeUnixNano+200_000_000 {
		t.Errorf("events %v", s.Events)
	}
	if got := attributesOf(to.spans[0].Resource.Attributes); got["service.name"] != "nginx" || got["host.name"] != "web1" {
		t.Errorf("resource %v", got)
	}
}

func checkLogs(t *testing.T, to *receiver) {
	t.Helper()
	names := map[string]string{}
	for _, r := range to.allLogs() {
		a := attributesOf(r.Attributes)
		names[r.EventName] = a["slowray.cause"] + " " + r.Body.GetStringValue() + " " + a["slowray.subject.port"]
	}
	if names["slowray.finding.begin"] != "blocked-on-disk The application waits for a disk: 75 % of the requests' time 80" ||
		names["slowray.finding.end"] != "host-oom-killed no longer: The application waits for a disk 8080" {
		t.Errorf("log records %v", names)
	}
}

func checkMetrics(t *testing.T, to *receiver) {
	t.Helper()
	units := map[string]string{}
	for _, m := range to.metrics[0].ScopeMetrics[0].Metrics {
		units[m.Name] = m.Unit
		if m.Name != "slowray.request.duration" {
			continue
		}
		p := m.GetExponentialHistogram().DataPoints[0]
		total := p.ZeroCount
		for _, n := range p.Positive.BucketCounts {
			total += n
		}
		if total != p.Count || p.Count != 14 || p.GetMax() != 0.215 {
			t.Errorf("%d values in buckets, count %d, greatest %g", total, p.Count, p.GetMax())
		}
		top := upper(p.Scale, p.Positive.Offset+int32(len(p.Positive.BucketCounts))-1)
		if top < 0.215*0.98 || top > 0.215*1.05 {
			t.Errorf("the highest bucket ends at %g s", top)
		}
	}
	for _, d := range declared() {
		if unit, ok := units[d.otel]; ok && unit != d.unit {
			t.Errorf("%s is in %q, want %q", d.otel, unit, d.unit)
		}
	}
	for _, must := range []string{"slowray.requests", "slowray.request.ledger", "slowray.finding", "slowray.cpu"} {
		if units[must] == "" {
			t.Errorf("%s is missing", must)
		}
	}
}

// TestPushGetsOverFailure: what fails is tried again until it works, nothing
// arrives twice, and it is said once.
func TestPushGetsOverFailure(t *testing.T) {
	to := newReceiver(t)
	to.answer = func(string) (int, []byte) { return 503, nil }
	x := New(Options{})
	var mu sync.Mutex
	var said []string
	pushing(t, x, to.url, func(o *PushOptions) {
		o.Say = func(m string) { mu.Lock(); said = append(said, m); mu.Unlock() }
	})
	for range 3 {
		x.Request(slowRequest())
	}
	to.does("five attempts", func() bool { return to.calls >= 5 })
	to.mu.Lock()
	to.answer = nil
	to.mu.Unlock()
	to.does("the requests", func() bool { return len(to.allSpans()) >= 3 && len(to.metrics) > 0 })
	if n := len(to.allSpans()); n != 3 {
		t.Errorf("%d spans, want 3", n)
	}
	stats, _ := x.PushStats()
	if stats.Sent[requestSignal] != 3 || stats.Dropped[requestSignal] != 0 || stats.Failed < 5 || stats.Last != "" {
		t.Errorf("%+v", stats)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(said)
	var of []string
	for _, line := range said { // each signal on its own
		of = append(of, strings.TrimPrefix(line, "otlp: "+to.url+": "))
	}
	if want := []string{"metrics: status 503", "metrics: works again", "requests: status 503", "requests: works again"}; !slices.Equal(of, want) {
		t.Errorf("said %q, want %q", of, want)
	}
}

// TestPushOneSignalAway: a collector that has no backend for traces still gets metrics and
// findings; and so it does while requests come faster than it takes them.
func TestPushOneSignalAway(t *testing.T) {
	for name, answer := range map[string]func(path string) (int, []byte){
		"no traces": func(path string) (int, []byte) {
			if strings.Contains(path, "trace") {
				return 503, nil
			}
			return 200, nil
		},
		"slow": func(path string) (int, []byte) {
			if strings.Contains(path, "trace") {
				time.Sleep(30 * time.Millisecond)
			}
			return 200, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := newReceiver(t)
			to.answer = answer
			x := fed(1, 2, Options{})
			pushing(t, x, to.url, nil)
			more, end := context.WithCancel(t.Context())
			defer end()
			go func() {
				for more.Err() == nil {
					x.Request(slowRequest())
					time.Sleep(time.Millisecond)
				}
			}()
			x.Window(windowOf(findingOf("fd-limit", "nginx", 80)))
			to.does("metrics and findings", func() bool { return len(to.metrics) > 3 && len(to.allLogs()) > 0 })
		})
	}
}

// TestPushDropsWhatIsRefused: what is not worth another attempt is counted as
// dropped, and so is what a collector takes only in part.
func TestPushDropsWhatIsRefused(t *testing.T) {
	for _, scheme := range []string{"http", "grpc"} {
		t.Run(scheme, func(t *testing.T) {
			to := newReceiver(t)
			partly := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
			partly = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partly)
			to.answer = func(path string) (int, []byte) {
				switch {
				case strings.Contains(strings.ToLower(path), "trace"):
					return 200, partly
				case strings.Contains(path, "logs"):
					return map[string]int{"http": 400, "grpc": 3}[scheme], nil
				}
				return 200, nil
			}
			x := New(Options{})
			pushing(t, x, strings.Replace(to.url, "http", scheme, 1), nil)
			for range 5 {
				x.Request(slowRequest())
			}
			x.Window(windowOf(findingOf("fd-limit", "nginx", 80)))
			to.does("both answers", func() bool {
				s, _ := x.PushStats()
				return s.Sent[requestSignal]+s.Dropped[requestSignal] >= 5 && s.Dropped[findingSignal] >= 2
			})
			if s, _ := x.PushStats(); s.Dropped[requestSignal] < 2 || s.Sent[findingSignal] != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestPushNeverBlocks: with a collector that never answers, adding goes on, the
// queue keeps its bound and what gives way is counted.
func TestPushNeverBlocks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x := New(Options{})
	stop := pushing(t, x, "http://"+l.Addr().String(), func(o *PushOptions) { o.timeout = 200 * time.Millisecond })
	begin := time.Now()
	const n = 3 * requestQueue
	for range n {
		x.Request(slowRequest())
	}
	for range 2 * findingQueue {
		x.Window(windowOf(findingOf("fd-limit", "nginx", 80)))
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("adding took %s", took)
	}
	stats, _ := x.PushStats()
	if stats.Dropped[requestSignal] != n-requestQueue || stats.Dropped[findingSignal] != 4*findingQueue-findingQueue {
		t.Errorf("dropped %v", stats.Dropped)
	}
	begin = time.Now()
	stop()
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it takes %s to end", took)
	}
	f, _ := scrape(t, x)
	if got := value(t, f, "slowray_otlp_dropped_total", "signal=requests"); got != n-requestQueue {
		t.Errorf("shown as dropped: %g", got)
	}
}

// TestPushHostile: whatever names are, the messages can be read.
func TestPushHostile(t *testing.T) {
	to := newReceiver(t)
	x := New(Options{Version: hostile[0], Host: hostile[6], Endpoints: 1000})
	pushing(t, x, to.url, nil)
	for i, a := range hostile {
		b := hostile[(i+1)%len(hostile)]
		r := slowRequest()
		r.Label, r.Process.Comm, r.Process.ContainerName, r.Process.Unit, r.Process.Container = a, a, b, a, b
		r.Local, r.Peer = netip.AddrPort{}, netip.AddrPort{}
		x.Request(r)
		x.add(secondOf(observe.Served, a, i, b))
		f := findingOf(a, b, i)
		f.Title, f.Impact.Text, f.Impact.Of, f.Fix.Text, f.Subject.Path, f.Subject.Rule = a, b, a, b, a, b
		f.Impact.Share = math.Inf(1)
		f.Evidence = slices.Repeat([]cause.Evidence{{Fact: a, Value: b, Unit: a, Source: b}}, 100)
		x.Window(&record.Window{Findings: []record.Finding{{Finding: f, New: true, Onset: time.Unix(-5, 0)}}})
	}
	to.does("all of it", func() bool {
		return len(to.allSpans()) >= len(hostile) && len(to.allLogs()) >= len(hostile) && len(to.metrics) > 0
	})
	if s, _ := x.PushStats(); s.Dropped != [numSignals]uint64{} {
		t.Errorf("dropped %v: %s", s.Dropped, s.Last)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, m := range []proto.Message{&tracepb.TracesData{ResourceSpans: to.spans}, &logspb.LogsData{ResourceLogs: to.logs}} {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(string(data), "\x1b") {
			// An escape may be a length: only in text does it matter.
			for _, s := range to.allSpans() {
				if strings.Contains(fmt.Sprint(attributesOf(s.Attributes), s.Name), "\x1b") {
					t.Fatal("an escape sequence goes through")
				}
			}
		}
	}
}

// TestPushNeedsAURL: bad targets are one clear line, which shows no password.
func TestPushNeedsAURL(t *testing.T) {
	for url, want := range map[string]string{
		"":                           "must begin with http://",
		"localhost:4318":             "must begin with http://",
		"ftp://x":                    "must begin with http://",
		"http://":                    "names no host",
		"http://u:secret@[::1":       "cannot be read",
		"grpc://host/path":           "takes no path",
		"http://u:secret@host/?x=1":  "takes no query",
		"gopher://u:secret@host:123": "must begin with http://",
	} {
		_, err := New(Options{}).Push(PushOptions{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
	for _, headers := range []string{"a", "a=%zz", "=b", "a=b%0d%0ac"} {
		if _, err := New(Options{}).Push(PushOptions{URL: "http://h", Headers: headers}); err == nil {
			t.Errorf("headers %q are taken", headers)
		}
	}
	x := New(Options{})
	if _, err := x.Push(PushOptions{URL: "grpcs://h"}); err != nil {
		t.Error(err)
	}
	if _, err := x.Push(PushOptions{URL: "http://h"}); err == nil {
		t.Error("it is sent to two places")
	}
}
