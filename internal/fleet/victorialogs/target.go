package victorialogs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/printable"
)

// settleTime is after how long lines that a front has taken can be found: it hands
// them on after a second, and a storage node shows them after another one.
const settleTime = 3 * time.Second

// Target is a VictoriaLogs.
type Target struct {
	cfg    *config
	http   *http.Client
	front  atomic.Uint32 // the one that is used
	settle time.Duration

	mu      sync.Mutex
	senders map[fleet.Stream]*sender
}

// sender is what a stream's goroutine needs.
type sender struct {
	lines lines
	zip   *gzip.Writer
	body  bytes.Buffer
}

var _ fleet.Target = (*Target)(nil)

// Open makes a Target of a URL; nothing is asked before the first use.
func Open(text string) (*Target, error) {
	cfg, err := parse(text)
	if err != nil {
		return nil, err
	}
	const dial = 5 * time.Second
	return &Target{cfg: cfg, settle: settleTime, senders: map[fleet.Stream]*sender{}, http: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dial}).DialContext, TLSHandshakeTimeout: dial,
			MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
		},
		// A password goes to the server that was named, and to no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close implements fleet.Target.
func (t *Target) Close() error {
	t.http.CloseIdleConnections()
	return nil
}

// Mark implements fleet.Target: see the package.
func (t *Target) Mark(context.Context, *fleet.Host, fleet.Stream) (fleet.Position, error) {
	return 0, fleet.ErrNoMark
}

// Hello implements fleet.Target.
func (t *Target) Hello(ctx context.Context, h *fleet.Host, now time.Time) error {
	s := t.sender("hosts")
	s.lines.b = s.lines.b[:0]
	s.lines.greeting(h, now)
	return t.insert(ctx, s)
}

func (t *Target) sender(name fleet.Stream) *sender {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.senders[name]
	if s == nil {
		s = &sender{}
		s.zip, _ = gzip.NewWriterLevel(&s.body, gzip.BestSpeed)
		t.senders[name] = s
	}
	return s
}

// Send implements fleet.Target.
func (t *Target) Send(ctx context.Context, b *fleet.Batch) error {
	s := t.sender(b.Stream)
	var there map[fleet.Position]bool
	if b.Again {
		var err error
		if there, err = t.positions(ctx, b); err != nil {
			return err
		}
	}
	s.lines.b = s.lines.b[:0]
	switch b.Stream {
	case fleet.Requests:
		for p, r := range b.Requests {
			if !there[p] {
				s.lines.request(b.Host, p, r)
			}
		}
	case fleet.Seconds:
		for p, x := range b.Seconds {
			if !there[p] {
				s.lines.second(b.Host, p, x)
			}
		}
	case fleet.Findings:
		for p, f := range b.Findings {
			if !there[p] {
				s.lines.finding(b.Host, p, f)
			}
		}
	}
	if len(s.lines.b) == 0 {
		return nil
	}
	return t.insert(ctx, s)
}

// insert sends the lines of a sender.
func (t *Target) insert(ctx context.Context, s *sender) error {
	s.body.Reset()
	s.zip.Reset(&s.body)
	s.zip.Write(s.lines.b)
	s.zip.Close()
	params := url.Values{"_stream_fields": {"host,stream,service"}}
	_, err := t.do(ctx, "/insert/jsonline?"+params.Encode(), "application/stream+json", "gzip", s.body.Bytes(), 0)
	return err
}

// positions are those of a batch that are there. It waits until what was sent before
// can be seen.
func (t *Target) positions(ctx context.Context, b *fleet.Batch) (map[fleet.Position]bool, error) {
	select {
	case <-time.After(t.settle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	from, to := span(b)
	query := fmt.Sprintf(`{host=%s,stream=%s} _time:[%d, %d] history:=%s position:range[%d, %d] | fields position | limit %d`,
		strconv.Quote(b.Host.Name), strconv.Quote(string(b.Stream)), from*1000, to*1000+999, strconv.Quote(b.Host.ID), b.First, b.Last, mostPositions(b))
	answer, err := t.do(ctx, "/select/logsql/query", "application/x-www-form-urlencoded", "", []byte(url.Values{"query": {query}}.Encode()), mostPositions(b)*maxLine)
	if err != nil {
		return nil, err
	}
	there, err := parsePositions(answer, b)
	if err != nil {
		return nil, fmt.Errorf("victorialogs: what positions are there: %w", err)
	}
	return there, nil
}

// parsePositions reads which positions of a batch are there, a line of JSON for each. An
// answer that tells of others, or of more lines than were asked for, tells nothing of
// what is not in it.
func parsePositions(answer []byte, b *fleet.Batch) (map[fleet.Position]bool, error) {
	there := map[fleet.Position]bool{}
	lines := 0
	for line := range bytes.Lines(answer) {
		var row struct {
			Position string `json:"position"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(row.Position, 10, 64)
		p := fleet.Position(n)
		switch lines++; {
		case err != nil:
			return nil, err
		case p < b.First || p > b.Last:
			return nil, fmt.Errorf("%d was not asked for", p)
		case lines > mostPositions(b):
			return nil, fmt.Errorf("more than %d lines", mostPositions(b))
		}
		there[p] = true
	}
	return there, nil
}

// mostPositions is how many positions are asked for: some may be there twice.
func mostPositions(b *fleet.Batch) int { return 2*b.Count + 1 }

// span is the time of a batch's records, µs since 1970.
func span(b *fleet.Batch) (from, to int64) {
	from, to = math.MaxInt64, math.MinInt64
	at := func(us int64) { from, to = min(from, us), max(to, us) }
	switch b.Stream {
	case fleet.Requests:
		for _, r := range b.Requests {
			at(r.StartNS / 1000)
		}
	case fleet.Seconds:
		for _, s := range b.Seconds {
			at(s.At * 1e6)
		}
	case fleet.Findings:
		for _, f := range b.Findings {
			at(f.Start.UnixMicro())
		}
	}
	return from, to
}

const (
	// maxLine bounds a line of an answer that tells a position, bytes.
	maxLine = 128
	// maxError is how much of an error is read, bytes.
	maxError = 200
	// maxHeader bounds the head of an answer, bytes.
	maxHeader = 64 << 10
)

// do asks the front that is used, and another one the next time when it fails. An answer
// of more than most bytes is an error, for what is not in it would be retransmitted; of one
// that is not of interest, most is 0, nothing is read.
func (t *Target) do(ctx context.Context, path, kind, coding string, body []byte, most int) ([]byte, error) {
	n := t.front.Load()
	front := t.cfg.fronts[int(n)%len(t.cfg.fronts)]
	answer, err := t.ask(ctx, front+t.cfg.path+path, kind, coding, body, most)
	if err != nil {
		t.front.CompareAndSwap(n, n+1)
		return nil, fmt.Errorf("victorialogs: %s: %w", strings.TrimPrefix(strings.TrimPrefix(front, "http://"), "https://"), err)
	}
	return answer, nil
}

func (t *Target) ask(ctx context.Context, address, kind, coding string, body []byte, most int) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fleet.Permanent(errors.New("malformed address"))
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("User-Agent", "slowray")
	if coding != "" {
		r.Header.Set("Content-Encoding", coding)
	}
	if t.cfg.user != "" {
		r.SetBasicAuth(t.cfg.user, t.cfg.password)
	}
	if t.cfg.account != "" || t.cfg.project != "" {
		r.Header.Set("AccountID", cmp.Or(t.cfg.account, "0"))
		r.Header.Set("ProjectID", cmp.Or(t.cfg.project, "0"))
	}
	got, err := t.http.Do(r)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, err
	}
	defer got.Body.Close()
	if got.StatusCode/100 != 2 {
		// What cannot be read of it tells less than the status.
		text, _ := io.ReadAll(io.LimitReader(got.Body, maxError))
		err = fmt.Errorf("status %d: %s", got.StatusCode, printable.Text(string(text)))
		switch {
		case got.StatusCode == http.StatusTooManyRequests || got.StatusCode == http.StatusRequestTimeout:
		case got.StatusCode/100 == 4 || got.StatusCode/100 == 3:
			err = fleet.Permanent(err)
		}
		return nil, err
	}
	if most == 0 {
		return nil, nil
	}
	answer, err := io.ReadAll(io.LimitReader(got.Body, int64(most)+1))
	if err == nil && len(answer) > most {
		err = fmt.Errorf("an answer of more than %d bytes", most)
	}
	return answer, err
}
