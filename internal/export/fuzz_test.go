package export

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// partialSuccess is how a collector says that it left items out.
func partialSuccess(rejected uint64, why string) []byte {
	inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), rejected)
	inner = protowire.AppendString(protowire.AppendTag(inner, 2, protowire.BytesType), why)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner)
}

// FuzzCollector reads what a collector answers, over HTTP and gRPC. It asks for no longer
// a pause than may be, and what it says is one line of bounded length.
func FuzzCollector(f *testing.F) {
	f.Add(200, partialSuccess(3, "no room"), "", "", "", "")
	f.Add(200, append([]byte{0, 0, 0, 0, 9}, partialSuccess(1<<63, "\xff")...), "", "0", "", "")
	f.Add(503, []byte{}, "120", "14", "unavailable", "")
	f.Add(429, []byte("\x0a\xff\xff\xff\xff\x7f"), "Wed, 21 Oct 2026 07:28:00 GMT", "8", "\x1b[31m", "Wed, 21 Oct 2026 07:27:00 GMT")
	f.Add(429, []byte{}, "99999999999999999999", "", "", "")
	f.Fuzz(func(t *testing.T, status int, body []byte, after, code, message, date string) {
		got := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}, "Date": {date}}, Trailer: http.Header{"Grpc-Status": {code}, "Grpc-Message": {message}}}
		budgettest.Within(t, len(body)+len(message)+len(code), budgettest.Usual, func() {
			for _, a := range []answer{httpAnswer(got, body), grpcAnswer(got, body)} {
				if a.after < 0 || a.after > mostAfter {
					t.Errorf("a pause of %s", a.after)
				}
				if a.err != nil {
					if text := a.err.Error(); len(text) > 1000 || strings.ContainsAny(text, "\x1b\n\r") || !utf8.ValidString(text) {
						t.Errorf("%q", text)
					}
				}
				if len(a.why) > len(body) {
					t.Errorf("%d bytes of %d", len(a.why), len(body))
				}
				if why := bounded(a.why, 2*maxLabel); len(why) > 2*maxLabel || !utf8.ValidString(why) {
					t.Errorf("%q", why)
				}
			}
		})
		if want := partial(partialSuccess(uint64(status), message)); want.rejected != int64(status) || want.why != message {
			t.Errorf("%+v", want)
		}
	})
}

// FuzzCollectorURL reads a URL and headers. Neither is in an error: they may be secret.
func FuzzCollectorURL(f *testing.F) {
	f.Add("http://col:4318", "authorization=Bearer%20x, b = c ")
	f.Add("grpcs://col", "")
	f.Add("grpc://me:hunter2@[::1]:1/x", "a")
	f.Add("http://h/%zz", "k=%zz")
	f.Fuzz(func(t *testing.T, target, headers string) {
		budgettest.Within(t, len(target)+len(headers), budgettest.Usual, func() {
			w, err := newWire(target, headers)
			if err != nil {
				if u, bad := url.Parse(target); bad == nil && u.User != nil {
					if password, _ := u.User.Password(); len(password) > 6 && strings.Contains(err.Error(), password) && !strings.Contains(u.Redacted(), password) {
						t.Errorf("%v", err)
					}
				}
				return
			}
			for key, values := range w.headers {
				if strings.ContainsAny(key+strings.Join(values, ""), "\r\n") {
					t.Errorf("%q: %q", key, values)
				}
			}
			if text := w.String(); len(text) > 2*maxLabel || strings.ContainsAny(text, "\r\n\x1b") {
				t.Errorf("%q", text)
			}
		})
	})
}

// FuzzLabel makes labels of what hosts are called: text of bounded length, and the same
// when it is made one again.
func FuzzLabel(f *testing.F) {
	f.Add("nginx", 128)
	f.Add("\x1b[31m\xff\u202e", 16)
	f.Add(strings.Repeat("é", 100), 31)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = min(max(most, 8), 4096)
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			got := bounded(text, most)
			if len(got) > most || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\n\r\x1b\u202e") {
				t.Errorf("%q", got)
			}
			if again := bounded(got, most); again != got {
				t.Errorf("%q, and then %q", got, again)
			}
		})
	})
}

// FuzzMessage makes OTLP of requests and findings with any texts and numbers: it can
// always be sent, and is what was put in.
func FuzzMessage(f *testing.F) {
	f.Add("GET /x", "nginx", "c1", int64(1e18), int64(5e6), uint32(7))
	f.Add("\xff\xfe", "\x00", strings.Repeat("x", 5000), int64(-1), int64(-1), uint32(1<<31))
	f.Fuzz(func(t *testing.T, text, comm, container string, start, took int64, n uint32) {
		x := New(Options{Host: text, Version: comm})
		var r store.Request
		r.StartNS, r.Label, r.Side, r.Flags, r.HTTP = start, text, observe.Side(n&3), observe.RequestFlags(n), int(n)
		r.Ledger[observe.Server], r.FirstByte, r.Why = took, took/2, store.Why(n)
		r.Process = observe.Identity{Comm: comm, Container: container, ContainerName: text, Unit: comm}
		r.Local, r.Peer = netip.AddrPortFrom(netip.IPv6LinkLocalAllNodes().WithZone(text), 1), netip.MustParseAddrPort("10.0.0.1:80")
		parent := cause.ID(container)
		found := foundAt{Finding: cause.Finding{Title: text, Cause: cause.ID(comm), ConsequenceOf: &parent}, at: time.Unix(0, start), windows: int(n)}
		found.Subject.Rule, found.Subject.Path, found.Subject.Comm = text, comm, container
		budgettest.Within(t, len(text)+len(comm)+len(container), budgettest.Usual, func() {
			for _, m := range []proto.Message{x.spans([]store.Request{r, r}), x.logs([]foundAt{found})} {
				b, err := proto.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				again := m.ProtoReflect().New().Interface()
				if err := proto.Unmarshal(b, again); err != nil || !proto.Equal(m, again) {
					t.Fatalf("it is read as something else: %v", err)
				}
				if data, ok := again.(*tracepb.TracesData); ok && len(data.ResourceSpans[0].ScopeSpans[0].Spans) != 2 {
					t.Fatal("two requests are not two spans")
				}
			}
		})
	})
}
