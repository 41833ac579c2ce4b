package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// wire sends messages of OTLP: with HTTP (opentelemetry.io/docs/specs/otlp,
// "OTLP/HTTP", binary protobuf) or as unary calls of gRPC, which are HTTP/2 with
// a prefix and trailers. No library of gRPC is needed for that.
type wire struct {
	base    *url.URL // with http or https
	grpc    bool
	headers http.Header
	client  *http.Client
}

// paths of the signals, and the services of gRPC.
var (
	wirePaths    = [numSignals]string{requestSignal: "/v1/traces", findingSignal: "/v1/logs", metricSignal: "/v1/metrics", profileSignal: "/v1development/profiles"}
	wireServices = [numSignals]string{
		requestSignal: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
		findingSignal: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
		metricSignal:  "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
		profileSignal: "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
	}
)

func newWire(target, headers string) (*wire, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("the URL cannot be read") // and is not shown: it may have a password
	}
	w := &wire{headers: http.Header{}}
	switch u.Scheme {
	case "http", "https":
	case "grpc", "grpcs":
		w.grpc = true
		u.Scheme = strings.Replace(u.Scheme, "grpc", "http", 1)
		if u.Port() == "" {
			u.Host += ":4317"
		}
	default: // what stands where may be anything, also a password
		return nil, errors.New("the URL must begin with http://, https://, grpc:// or grpcs://")
	}
	if u.Hostname() == "" {
		return nil, errors.New("the URL names no host")
	}
	if w.grpc && strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("%q: gRPC takes no path", u.Host)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q: takes no query", u.Host)
	}
	w.base = u
	for pair := range strings.SplitSeq(headers, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || err != nil || key == "" || strings.ContainsAny(key, " :\r\n") || strings.ContainsAny(value, "\r\n") {
			return nil, errors.New("headers: must be key=value,key=value") // and not shown: they may be secret
		}
		w.headers.Set(key, value)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	transport.MaxResponseHeaderBytes = maxAnswer
	if w.grpc {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP2(u.Scheme == "https")
		transport.Protocols.SetUnencryptedHTTP2(u.Scheme == "http")
	}
	w.client = &http.Client{
		Transport: transport,
		// A redirect would send the headers elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

func (w *wire) String() string {
	u := *w.base
	if w.grpc {
		u.Scheme = strings.Replace(u.Scheme, "http", "grpc", 1)
	}
	return bounded(u.Redacted(), 2*maxLabel)
}

// maxAnswer bounds what is read of an answer, its head and its body each, bytes.
const maxAnswer = 64 << 10

// answer is what became of a message.
type answer struct {
	err      error
	again    bool          // another attempt may go better
	away     bool          // nobody answered
	after    time.Duration // no sooner than that
	rejected int64         // items that were not taken, of a message that was
	why      string        // they were not, as the collector says
}

// send sends a message, compressed.
func (w *wire) send(ctx context.Context, s signal, message []byte) answer {
	var packed bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	zip.Write(message)
	zip.Close()
	body, at := packed.Bytes(), w.base.JoinPath(wirePaths[s])
	if w.grpc {
		const compressed = 1
		body = append(binary.BigEndian.AppendUint32([]byte{compressed}, uint32(packed.Len())), body...)
		at = w.base.JoinPath(wireServices[s])
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	for key, values := range w.headers {
		r.Header[key] = values
	}
	r.Header.Set("User-Agent", "slowray")
	if w.grpc {
		r.Header.Set("Content-Type", "application/grpc+proto")
		r.Header.Set("Grpc-Encoding", "gzip")
		r.Header.Set("Te", "trailers")
	} else {
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Content-Encoding", "gzip")
	}
	got, err := w.client.Do(r)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // without the URL, which is reported next to it
		}
		return answer{err: err, again: true, away: true}
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer))
	if err != nil {
		return answer{err: err, again: true, away: true}
	}
	if w.grpc {
		return grpcAnswer(got, text)
	}
	return httpAnswer(got, text)
}

func httpAnswer(got *http.Response, body []byte) answer {
	if got.StatusCode/100 == 2 {
		return partial(body)
	}
	a := answer{err: fmt.Errorf("status %d", got.StatusCode)}
	switch got.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		a.again = true
		a.after = retryAfter(got.Header, time.Now())
	}
	return a
}

// mostAfter is the longest that a collector may ask for.
const mostAfter = time.Hour

// retryAfter is how long a server wants to be left alone: seconds or a date (RFC 9110,
// 10.2.3), which is taken by the server's own clock where it tells it; 0 where it does not
// say, or nothing that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		s, err := strconv.ParseInt(text, 10, 64)
		if err != nil || s > int64(mostAfter/time.Second) {
			return mostAfter // digits, and too many of them
		}
		return time.Duration(s) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(at.Sub(now), 0), mostAfter)
}

// grpcRetry are the codes after which OTLP says to try again.
var grpcRetry = map[string]bool{"1": true, "4": true, "8": true, "10": true, "11": true, "14": true, "15": true}

func grpcAnswer(got *http.Response, body []byte) answer {
	code, text := got.Trailer.Get("Grpc-Status"), got.Trailer.Get("Grpc-Message")
	if code == "" { // an answer of trailers only
		code, text = got.Header.Get("Grpc-Status"), got.Header.Get("Grpc-Message")
	}
	switch {
	case code == "0":
		const prefix = 5
		if len(body) < prefix || body[0] != 0 {
			return answer{}
		}
		return partial(body[prefix:])
	case code == "":
		return answer{err: fmt.Errorf("status %d without one of gRPC", got.StatusCode), again: got.StatusCode/100 == 5 || got.StatusCode == http.StatusTooManyRequests}
	}
	return answer{err: fmt.Errorf("gRPC status %s %s", label(code), bounded(text, 2*maxLabel)), again: grpcRetry[code]}
}

// partial reads how many items were not taken, and why, out of an answer: all
// kinds have them as fields 1 and 2 of their field 1, partial_success
// (opentelemetry/proto/collector/*/v1/*_service.proto). An answer that cannot be read
// tells of none.
func partial(body []byte) answer {
	inner := field(body, 1, protowire.BytesType)
	if inner == nil {
		return answer{}
	}
	n, size := protowire.ConsumeVarint(field(inner, 1, protowire.VarintType))
	if size < 0 {
		n = 0
	}
	return answer{rejected: int64(n), why: string(field(inner, 2, protowire.BytesType))}
}

// field is the value of a field of a message: the bytes of a string or message,
// or what begins with a number; nil when there is none.
func field(message []byte, number protowire.Number, kind protowire.Type) []byte {
	for len(message) > 0 {
		n, t, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil
		}
		message = message[size:]
		if n == number && t == kind {
			if t != protowire.BytesType {
				return message
			}
			value, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return nil
			}
			return value
		}
		if size = protowire.ConsumeFieldValue(n, t, message); size < 0 {
			return nil
		}
		message = message[size:]
	}
	return nil
}
