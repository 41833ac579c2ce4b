package assistant

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options is where answers come from.
type Options struct {
	Version string
	// Command runs a reading command of slowray and gives what it printed. What it
	// printed may be JSON where it also failed: a report that could not judge.
	Command func(ctx context.Context, args ...string) ([]byte, error)
	// History is the answers of the page over the recorded history; the error says why
	// there is none.
	History func() (http.Handler, error)
	// Moment reads a time as --at takes it.
	Moment func(text string) (time.Time, error)
}

const instructions = `slowray measures every request on every TCP connection of this host in the kernel and names the causes of slow and failed ones.
Begin with "why" (it watches for some seconds; give at= for the past). findings are root causes, ranked; consequences go away with them. ruled_out and not_checked say what it is not, and what nobody knows.
"proof_plan" says how a person can prove a cause; nothing here changes the host. Lists that were shortened to fit max_tokens are counted under left_out.`

const (
	atOnce = 2 // questions that are worked on at a time
	// mostWaiting is how many wait for that, or are worked on: no assistant asks as many.
	mostWaiting = 64
)

// server is the tools.
type server struct {
	opt     Options
	turns   chan struct{}
	waiting atomic.Int32
}

// New makes the MCP server.
func New(opt Options) *mcp.Server {
	s := &server{opt: opt, turns: make(chan struct{}, atOnce)}
	m := mcp.NewServer(&mcp.Implementation{Name: "slowray", Title: "slowray", Version: opt.Version}, &mcp.ServerOptions{Instructions: instructions})
	add(s, m, "why", "Why is it slow? Watches this host for some seconds, or judges a recorded time, and names the causes of slow and failed requests, with evidence, fix, what was ruled out and what could not be checked.", s.why)
	add(s, m, "services", "Which services answer and call here: requests per second, errors, latency quantiles, and the time breakdown. Of the recorded history, or of two seconds from now where nothing is recorded.", s.services)
	add(s, m, "slow_requests", "The slowest requests one by one, each with its time breakdown. Of the recorded history, or of some seconds from now where nothing is recorded.", s.slowRequests)
	add(s, m, "request", "One recorded request by its id (from slow_requests): its time breakdown, its hops on this host, whom its thread waited for.", s.request)
	add(s, m, "cause_page", "All about one cause: symptoms, evidence, what it is easily taken for, how to fix it. Without a cause: the list of all causes.", s.causePage)
	add(s, m, "history", "What happened in a stretch of the recorded history: findings with onset and end, and what was different from the time around it.", s.history)
	add(s, m, "fleet_why", "The same question for many hosts that ship to one database: which services, what the slow ones have in common, where it comes from.", s.fleetWhy)
	add(s, m, "proof_plan", "How a cause would be proved on this host: the change, the way back, how long it takes. Nothing is changed.", s.proofPlan)
	addResources(m)
	return m
}

// bytesOfToken is how many bytes are one token: JSON with digits has fewer in one than prose.
const bytesOfToken = 3

// sized is asked along with every question.
type sized struct {
	MaxTokens int `json:"max_tokens,omitempty" jsonschema:"length of the answer, 300 to 20000 tokens of 3 bytes (2000)"`
}

func (z sized) limit() (int, error) {
	const usual, least, most = 2000, 300, 20000
	switch {
	case z.MaxTokens == 0:
		return usual * bytesOfToken, nil
	case z.MaxTokens < least || z.MaxTokens > most:
		return 0, fmt.Errorf("max_tokens %d: must be %d to %d", z.MaxTokens, least, most)
	}
	return z.MaxTokens * bytesOfToken, nil
}

// question is what every tool is asked.
type question interface{ limit() (int, error) }

// add adds a tool whose answer is cut to what was asked for.
func add[Q question](s *server, m *mcp.Server, name, about string, answer func(context.Context, Q) (*answer, error)) {
	closed := false
	tool := &mcp.Tool{Name: name, Description: about, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed}}
	mcp.AddTool(m, tool, func(ctx context.Context, req *mcp.CallToolRequest, q Q) (*mcp.CallToolResult, any, error) {
		limit, err := q.limit()
		if err != nil {
			return nil, nil, err
		}
		defer s.waiting.Add(-1)
		if s.waiting.Add(1) > mostWaiting {
			return nil, nil, fmt.Errorf("%d questions wait already: ask again when one of them is answered", mostWaiting)
		}
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		defer tell(ctx, req)()
		a, err := answer(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		text, err := fit(a, limit)
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, nil
	})
}

// progressEvery is how often who waits hears that it goes on.
const progressEvery = 2 * time.Second

// tell reports progress until what it returns is called, to clients that asked for it.
func tell(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		begin := time.Now()
		every := time.NewTicker(progressEvery)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
				seconds := time.Since(begin).Seconds()
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // the answer matters, not this
					ProgressToken: token, Progress: seconds, Message: fmt.Sprintf("%s: %.0f s", req.Params.Name, seconds)})
			}
		}
	}()
	return func() { cancel(); <-done }
}

// ask runs a command and reads its JSON.
func (s *server) ask(ctx context.Context, into any, args ...string) error {
	out, err := s.opt.Command(ctx, args...)
	if wrong := json.Unmarshal(out, into); wrong != nil {
		if err == nil {
			err = fmt.Errorf("slowray %s: %w", args[0], wrong)
		}
		return err
	}
	return nil
}
