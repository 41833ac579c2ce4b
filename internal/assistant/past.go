package assistant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/budget"
)

// maxAnswer bounds one answer of the page.
const maxAnswer = 16 << 20

// page asks for an answer of the page (docs/api.md).
func page(ctx context.Context, h http.Handler, path string, query url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	w := &written{header: http.Header{}, status: http.StatusOK, body: budget.Prefix{Most: maxAnswer}}
	h.ServeHTTP(w, r)
	if w.body.Over {
		return fmt.Errorf("%s: the answer is too long: ask for less time", path)
	}
	if w.status != http.StatusOK {
		var wrong struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(w.body.Text, &wrong) != nil || wrong.Error == "" {
			wrong.Error = http.StatusText(w.status)
		}
		return errors.New(wrong.Error)
	}
	return json.Unmarshal(w.body.Text, into)
}

// written takes an answer.
type written struct {
	header http.Header
	status int
	body   budget.Prefix
}

func (w *written) Header() http.Header { return w.header }
func (w *written) WriteHeader(s int)   { w.status = s }

func (w *written) Write(b []byte) (int, error) { return w.body.Write(b) }

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', 3, 64)
}

func between(from, to time.Time) url.Values {
	return url.Values{"from": {seconds(from)}, "to": {seconds(to)}}
}

// asked is of what time an answer is.
type asked struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Source string `json:"source"` // "history" or "live"
}

func recorded(from, to time.Time) asked {
	return asked{from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), "history"}
}

// service is what is shown of one, as a union of what history and live answers know.
type service struct {
	Key       string                     `json:"key,omitempty"`
	Title     string                     `json:"title,omitempty"`
	Side      string                     `json:"side"`
	Addr      string                     `json:"addr"`
	Port      int                        `json:"port"`
	Process   json.RawMessage            `json:"process,omitempty"`
	Workload  json.RawMessage            `json:"workload,omitempty"` // that answers a call, in Kubernetes
	Requests  float64                    `json:"requests"`
	RPS       *float64                   `json:"requests_per_s,omitempty"`
	Errors    float64                    `json:"errors"`
	Total     json.RawMessage            `json:"total_us,omitempty"`
	Server    json.RawMessage            `json:"server_us,omitempty"`
	Breakdown map[string]json.RawMessage `json:"time_breakdown_us,omitempty"`
	RTT       *float64                   `json:"rtt_us,omitempty"`
	Loss      *float64                   `json:"loss_permille,omitempty"`
	Retrans   *float64                   `json:"retransmitted_segments,omitempty"`
}

// UnmarshalJSON takes what the page and top call the same by other names.
func (v *service) UnmarshalJSON(b []byte) error {
	type plain service
	raw := struct {
		*plain
		RPS     *float64                   `json:"rps"`
		Ledger  map[string]json.RawMessage `json:"ledger_us"`
		Retrans *float64                   `json:"retrans"`
	}{plain: (*plain)(v)}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	v.RPS, v.Retrans, v.Breakdown = raw.RPS, raw.Retrans, raw.Ledger
	for part, of := range v.Breakdown { // those that take any time
		var p struct{ Share float64 }
		if json.Unmarshal(of, &p) == nil && p.Share < leastShare {
			delete(v.Breakdown, part)
		}
	}
	return nil
}

// leastShare is from which share of a request on a part of its time is shown.
const leastShare = 0.01

type pastQuestion struct {
	Port int `json:"port,omitempty" jsonschema:"only endpoints at this TCP port"`
	past
	sized
}

func (s *server) services(ctx context.Context, q pastQuestion) (*answer, error) {
	type answered struct {
		asked
		Services []service `json:"services"`
		Losses   any       `json:"losses,omitempty"`
	}
	out := answered{Services: []service{}}
	keep := map[string]int{"services": 5}
	h, err := s.opt.History()
	switch {
	case err == nil:
		from, to, err := s.span(q.past, 15*time.Minute)
		if err != nil {
			return nil, err
		}
		all, losses, err := endpoints(ctx, h, from, to)
		if err != nil {
			return nil, err
		}
		out.asked, out.Services, out.Losses = recorded(from, to), all, losses
	case q.At != "":
		return nil, err
	default:
		var live struct {
			Window struct {
				Start   time.Time `json:"start"`
				Seconds float64   `json:"seconds"`
			} `json:"window"`
			Endpoints []service       `json:"endpoints"`
			Losses    json.RawMessage `json:"losses"`
		}
		if err := s.ask(ctx, &live, "top", "--once", "--every=2s", "--json"); err != nil {
			return nil, err
		}
		out.asked = recorded(live.Window.Start, live.Window.Start.Add(time.Duration(live.Window.Seconds*float64(time.Second))))
		out.Source, out.Services, out.Losses = "live", live.Endpoints, live.Losses
	}
	if q.Port != 0 {
		out.Services = slices.DeleteFunc(out.Services, func(e service) bool { return e.Port != q.Port })
	}
	return &answer{value: out, keep: keep}, nil
}

func endpoints(ctx context.Context, h http.Handler, from, to time.Time) ([]service, json.RawMessage, error) {
	var all struct {
		Endpoints []service       `json:"endpoints"`
		Losses    json.RawMessage `json:"losses"`
	}
	err := page(ctx, h, "/api/endpoints", between(from, to), &all)
	return all.Endpoints, all.Losses, err
}

// at narrows a query to the endpoints at a port.
func at(ctx context.Context, h http.Handler, query url.Values, port int, from, to time.Time) error {
	all, _, err := endpoints(ctx, h, from, to)
	const most = 64 // keys of one question (docs/api.md)
	for _, e := range all {
		if e.Port == port && len(query["ep"]) < most {
			query.Add("ep", e.Key)
		}
	}
	return err
}

type slowQuestion struct {
	Port   int    `json:"port,omitempty" jsonschema:"only requests answered at this TCP port"`
	Status string `json:"status,omitempty" jsonschema:"only of this outcome: ok, error, unknown, 5xx, 503; only of the history"`
	Count  int    `json:"count,omitempty" jsonschema:"how many, 1 to 100 (10)"`
	past
	sized
}

func (s *server) slowRequests(ctx context.Context, q slowQuestion) (*answer, error) {
	count := 10
	if q.Count != 0 {
		count = q.Count
	}
	if count < 1 || count > 100 {
		return nil, fmt.Errorf("count %d: must be 1 to 100", q.Count)
	}
	h, err := s.opt.History()
	if err != nil {
		if q.At != "" || q.Status != "" {
			return nil, err
		}
		return s.slowNow(ctx, q, count)
	}
	from, to, err := s.span(q.past, 15*time.Minute)
	if err != nil {
		return nil, err
	}
	query := between(from, to)
	query.Set("sort", "slow")
	query.Set("limit", strconv.Itoa(count))
	if q.Status != "" {
		query.Set("status", q.Status)
	}
	if q.Port != 0 {
		if err := at(ctx, h, query, q.Port, from, to); err != nil {
			return nil, err
		}
		if len(query["ep"]) == 0 {
			return nil, fmt.Errorf("port %d: no request was recorded there from %s to %s", q.Port, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
		}
	}
	type answered struct {
		asked
		Matching *float64          `json:"total_matching"`
		Requests []json.RawMessage `json:"requests"`
		Losses   json.RawMessage   `json:"losses,omitempty"`
	}
	out := answered{asked: recorded(from, to)}
	if err := page(ctx, h, "/api/requests", query, &out); err != nil {
		return nil, err
	}
	return &answer{value: out, keep: map[string]int{"requests": 3}}, nil
}

// slowNow watches for some seconds, and keeps the slowest.
func (s *server) slowNow(ctx context.Context, q slowQuestion, count int) (*answer, error) {
	const usual, most = 5, 60
	long := usual
	if q.Seconds != 0 {
		long = q.Seconds
	}
	if long < 1 || long > most {
		return nil, fmt.Errorf("seconds %d: must be 1 to %d", q.Seconds, most)
	}
	args := []string{"requests", "--format=json", fmt.Sprintf("--for=%ds", long)}
	if q.Port != 0 {
		args = append(args, fmt.Sprintf("--port=%d", q.Port))
	}
	begin := time.Now()
	out, err := s.opt.Command(ctx, args...)
	if err != nil {
		return nil, err
	}
	type timed struct {
		total float64
		line  json.RawMessage
	}
	var all []timed
	for line := range bytes.Lines(out) {
		var r struct {
			Total float64 `json:"total_us"`
		}
		if json.Unmarshal(line, &r) == nil {
			all = append(all, timed{r.Total, bytes.TrimSpace(line)})
		}
	}
	slices.SortStableFunc(all, func(a, b timed) int { return int(min(1, max(-1, b.total-a.total))) })
	requests := []json.RawMessage{}
	for _, t := range all[:min(count, len(all))] {
		requests = append(requests, t.line)
	}
	a := recorded(begin, time.Now())
	a.Source = "live"
	return &answer{value: struct {
		asked
		Matching int               `json:"total_matching"`
		Requests []json.RawMessage `json:"requests"`
	}{a, len(all), requests}, keep: map[string]int{"requests": 3}}, nil
}

type requestQuestion struct {
	ID string `json:"id" jsonschema:"as in slow_requests"`
	sized
}

func (s *server) request(ctx context.Context, q requestQuestion) (*answer, error) {
	h, err := s.opt.History()
	if err != nil {
		return nil, err
	}
	var out map[string]json.RawMessage
	// A flame graph is for eyes.
	if err := page(ctx, h, "/api/request", url.Values{"id": {q.ID}, "stacks": {"0"}}, &out); err != nil {
		return nil, err
	}
	return &answer{value: out}, nil
}

func (s *server) history(ctx context.Context, q pastQuestion) (*answer, error) {
	h, err := s.opt.History()
	if err != nil {
		return nil, err
	}
	from, to, err := s.span(q.past, 15*time.Minute)
	if err != nil {
		return nil, err
	}
	type answered struct {
		asked
		Findings   []map[string]json.RawMessage `json:"findings"`
		NotChecked json.RawMessage              `json:"not_checked,omitempty"`
		RuledOut   json.RawMessage              `json:"ruled_out,omitempty"`
		Different  struct {
			Rows    []json.RawMessage `json:"rows"`
			Because string            `json:"because,omitempty"`
		} `json:"different_from_the_time_around"`
		Losses json.RawMessage `json:"losses,omitempty"`
		// Recorded is up to when there is a history: a finding without an end was
		// there until then.
		Recorded string `json:"recorded_until,omitempty"`
	}
	out := answered{asked: recorded(from, to)}
	query := between(from, to)
	var status struct {
		Span struct {
			To float64 `json:"to"`
		} `json:"span"`
	}
	if err := page(ctx, h, "/api/status", nil, &status); err == nil && status.Span.To > 0 {
		out.Recorded = time.UnixMilli(int64(status.Span.To * 1e3)).UTC().Format(time.RFC3339)
	}
	if err := page(ctx, h, "/api/findings", query, &out); err != nil {
		return nil, err
	}
	for _, f := range out.Findings {
		delete(f, "shares") // window by window: a curve
	}
	if q.Port != 0 {
		out.Findings = slices.DeleteFunc(out.Findings, func(f map[string]json.RawMessage) bool {
			var subject struct{ Port int }
			return json.Unmarshal(f["subject"], &subject) == nil && subject.Port != 0 && subject.Port != q.Port
		})
		if err := at(ctx, h, query, q.Port, from, to); err != nil {
			return nil, err
		}
	}
	if err := page(ctx, h, "/api/difference", query, &out.Different); err != nil {
		out.Different.Because = err.Error()
	}
	return &answer{value: out, keep: map[string]int{"findings": 3, "findings.evidence": 3, "different_from_the_time_around.rows": 5}}, nil
}
