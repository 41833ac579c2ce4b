package assistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"
)

// connect is a client of the SDK's, of a server with these options.
func connect(t *testing.T, opt Options) *mcp.ClientSession {
	t.Helper()
	if opt.History == nil {
		opt.History = func() (http.Handler, error) { return nil, errors.New("there is no history") }
	}
	if opt.Moment == nil {
		opt.Moment = func(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }
	}
	here, there := mcp.NewInMemoryTransports()
	server, err := New(opt).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Wait() })
	return client
}

func call(t *testing.T, s *mcp.ClientSession, tool string, args any) *mcp.CallToolResult {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r
}

func text(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

// ask calls a tool that must answer.
func ask(t *testing.T, s *mcp.ClientSession, tool string, args any) string {
	t.Helper()
	r := call(t, s, tool, args)
	if r.IsError {
		t.Fatalf("%s: %s", tool, text(r))
	}
	return text(r)
}

func TestTools(t *testing.T) {
	s := connect(t, Options{})
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(tools.Tools)
	if n := len(tools.Tools); n != 8 || len(b) > 10<<10 {
		t.Errorf("%d tools in %d bytes: an assistant reads them all, each time", n, len(b))
	}
	for _, tool := range tools.Tools {
		if tool.Annotations == nil || !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s: does not say that it only reads", tool.Name)
		}
	}
	pages, err := s.ListResources(t.Context(), nil)
	if err != nil || len(pages.Resources) < 40 {
		t.Fatalf("%d pages of the docs, %v", len(pages.Resources), err)
	}
	page, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "slowray://docs/ledger.md"})
	if err != nil || !strings.HasPrefix(page.Contents[0].Text, "# ") {
		t.Errorf("ledger.md: %v", err)
	}
}

// TestFlags: what is asked becomes flags, and no value becomes a flag of its own.
func TestFlags(t *testing.T) {
	var got [][]string
	s := connect(t, Options{Command: func(_ context.Context, args ...string) ([]byte, error) {
		got = append(got, args)
		return []byte(`{}`), nil
	}})
	hostile := "--apply\n--keep"
	ask(t, s, "why", map[string]any{"unit": hostile, "container": hostile, "at": hostile, "seconds": 3})
	ask(t, s, "fleet_why", map[string]any{"service": "--apply", "host": "--from=x"})
	ask(t, s, "proof_plan", map[string]any{"cause": "conntrack-full", "unit": hostile, "port": 80})
	for _, args := range got {
		for _, a := range args[1:] {
			if name, _, _ := strings.Cut(a, "="); slices.Contains([]string{"--apply", "--keep", "--from", "--save", "--dir"}, name) || a == hostile {
				t.Errorf("%q", args)
			}
		}
	}
	if len(got) != 3 || !slices.Contains(got[2], "--port=80") || got[2][1] != "conntrack-full" {
		t.Errorf("%q", got)
	}
	for tool, args := range map[string]map[string]any{
		"proof_plan":    {"cause": "--apply"},
		"cause_page":    {"cause": "conntrak-full"},
		"why":           {"seconds": 61},
		"services":      {"max_tokens": 1},
		"slow_requests": {"count": 101},
		"request":       {"id": "1"}, // no history
		"fleet_why":     {"service": "a\nb"},
	} {
		if r := call(t, s, tool, args); !r.IsError || text(r) == "" || strings.Contains(text(r), "\n") {
			t.Errorf("%s %v: %q", tool, args, text(r))
		}
	}
	if len(got) != 3 {
		t.Errorf("bad questions were asked on: %q", got[3:])
	}
	if !strings.Contains(ask(t, s, "cause_page", map[string]any{"cause": "conntrack-full"}), "nf_conntrack_max") {
		t.Error("the page of conntrack-full lacks its limit")
	}
}

// TestAnswersFit: an answer of any report has at most the bytes that were asked for, and
// says what was left out.
func TestAnswersFit(t *testing.T) {
	report, err := os.ReadFile("../diagnose/testdata/corpus/lab-log-collector-stalled-1/report.json")
	if err != nil {
		t.Fatal(err)
	}
	s := connect(t, Options{Command: func(context.Context, ...string) ([]byte, error) { return report, nil }})
	for _, tokens := range []int{1000, 2000, 5000, 20000} {
		got := ask(t, s, "why", map[string]any{"max_tokens": tokens})
		var a struct {
			Findings []json.RawMessage `json:"findings"`
			Left     map[string]int    `json:"left_out"`
		}
		if err := json.Unmarshal([]byte(got), &a); err != nil || len(got) > 3*tokens || len(a.Findings) == 0 || (len(a.Left) == 0) != (tokens == 20000) {
			t.Errorf("%d tokens: %d bytes, %d findings, left out %v, %v", tokens, len(got), len(a.Findings), a.Left, err)
		}
	}
}

// TestFit: of any JSON, what is left out and what is left of each list add up.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(200, 4000).Draw(t, "limit")
		whole := map[string]any{
			"findings": rapid.SliceOfN(rapid.Map(rapid.StringN(0, 400, 800), func(s string) any { return map[string]any{"text": s, "cause": "x"} }), 0, 40).Draw(t, "findings"),
			"services": rapid.SliceOfN(rapid.Map(rapid.Float64(), func(f float64) any { return f }), 0, 200).Draw(t, "services"),
			"verdict":  rapid.StringN(0, 300, 600).Draw(t, "verdict"),
		}
		got, err := fit(&answer{value: whole, keep: map[string]int{"findings": 3}}, limit)
		if err != nil {
			return // it says how many are needed
		}
		var a struct {
			Findings []any          `json:"findings"`
			Services []any          `json:"services"`
			Left     map[string]int `json:"left_out"`
		}
		if err := json.Unmarshal(got, &a); err != nil || len(got) > limit {
			t.Fatalf("%d bytes of %d, %v", len(got), limit, err)
		}
		for name, n := range map[string]int{"findings": len(a.Findings), "services": len(a.Services)} {
			if n+a.Left[name] != len(whole[name].([]any)) {
				t.Fatalf("%s: %d left, %d left out, of %d", name, n, a.Left[name], len(whole[name].([]any)))
			}
		}
	})
}

func TestHandler(t *testing.T) {
	const token = "0123456789abcdef"
	srv := httptest.NewServer(Handler(New(Options{}), token))
	t.Cleanup(srv.Close)
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"no token", func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		{"another token", func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdee") }, http.StatusUnauthorized},
		{"another host's name", func(r *http.Request) { r.Host = "rebound.example" }, http.StatusForbidden},
		{"another site", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		c.change(r)
		w, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if w.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d", c.name, w.StatusCode, c.want)
		}
	}
	client := srv.Client()
	client.Transport = bearer{token, client.Transport}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL, HTTPClient: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if tools, err := s.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 8 {
		t.Errorf("%v", err)
	}
}

// bearer adds a token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// TestManyQuestions: of a thousand at once most are refused at once, and the rest are answered.
func TestManyQuestions(t *testing.T) {
	answer := make(chan struct{})
	s := connect(t, Options{Command: func(ctx context.Context, _ ...string) ([]byte, error) {
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return []byte("{}"), nil
	}})
	const all = 1000
	refused := make(chan bool, all)
	for range all {
		go func() {
			r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "why", Arguments: map[string]any{}})
			refused <- err != nil || r.IsError && strings.Contains(text(r), "wait already")
		}()
	}
	for range all - mostWaiting {
		if !<-refused {
			t.Fatal("answered before it could be")
		}
	}
	close(answer)
	for range mostWaiting {
		if <-refused {
			t.Error("refused one that had its turn")
		}
	}
}

// TestFitLeavesOutMembers: where lists and texts alone cannot be cut enough, what matters least
// goes, and is counted; the verdict stays.
func TestFitLeavesOutMembers(t *testing.T) {
	const limit = 300 * bytesOfToken
	text := strings.Repeat("why ", 100)
	about := map[string]string{}
	for i := range 20 {
		about[fmt.Sprint("key", i)] = text
	}
	got, err := fit(&answer{value: struct {
		Verdict  string            `json:"verdict"`
		Findings []string          `json:"findings"`
		About    map[string]string `json:"about"`
	}{"PROBLEM " + text, []string{text, text}, about}}, limit)
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Verdict  string
		Findings []string
		LeftOut  map[string]int `json:"left_out"`
	}
	if err := json.Unmarshal(got, &seen); err != nil || len(got) > limit {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	if !strings.HasPrefix(seen.Verdict, "PROBLEM") || len(seen.Findings) != 1 || seen.LeftOut["about"] != 1 {
		t.Errorf("%s", got)
	}
}
