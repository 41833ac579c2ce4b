package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slowray/slowray/internal/accept"
	"github.com/slowray/slowray/internal/assistant"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/web"
)

type mcpCmd struct {
	Listen string `placeholder:"A" help:"Serve over HTTP at this loopback address, as 127.0.0.1:7790, instead of standard input and output. A token is needed, which is printed, or taken from $$SLOWRAY_TOKEN."`
	Dir    string `default:"${history}" placeholder:"D" complete:"dirs" help:"Where the history is (${default})."`
}

// Help is printed by --help, above the flags.
func (*mcpCmd) Help() string {
	return `Answers assistants that ask why a service is slow, as a server of the Model Context Protocol on standard input and output: why, services, slow_requests, request, cause_page, history, fleet_why, proof_plan. It only reads, and nothing that it is asked can change the host. docs/mcp.md says how to set it up.

Exit status: 0 ended as asked, 2 could not serve.`
}

// Run answers until standard input ends, or it is asked to end.
func (c *mcpCmd) Run(ctx context.Context, s *streams) error {
	h := pastAnswers{dir: c.Dir}
	defer h.close()
	there, gone := context.WithCancel(ctx)
	defer gone()
	m := assistant.New(assistant.Options{
		Version: version(), History: h.handler,
		Command: func(ctx context.Context, args ...string) ([]byte, error) {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			defer context.AfterFunc(there, stop)()
			return c.ask(ctx, args...)
		},
		Moment: func(text string) (time.Time, error) { return parseAt(text, time.Now()) },
	})
	if c.Listen != "" {
		return c.serve(ctx, m, s)
	}
	err := m.Run(ctx, &fromClient{assistant.Stdio(os.Stdin, os.Stdout, readerGone(os.Stdout)), gone})
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("mcp: %w", err)
	}
	return nil
}

// fromClient is the connection with a client. One that makes no sense, or neither says more
// nor reads answers, has gone, and what it asked ends: the library waits for all answers
// before it ends by itself.
type fromClient struct {
	mcp.Transport
	gone func()
}

// Connect connects.
func (f *fromClient) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := f.Transport.Connect(ctx)
	return &clientConnection{c, f.gone}, err
}

type clientConnection struct {
	mcp.Connection
	gone func()
}

// Read reads a message.
func (c *clientConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		c.gone()
	}
	return m, err
}

// serve answers over HTTP.
func (c *mcpCmd) serve(ctx context.Context, m *mcp.Server, s *streams) error {
	l, err := web.Listen(c.Listen)
	if err != nil {
		if taken := inUse(c.Listen); taken != nil {
			err = taken
		}
		return fmt.Errorf("mcp: %w", err)
	}
	defer l.Close()
	if !l.Loopback() {
		return fmt.Errorf("mcp: --listen %s: must be a loopback address, as 127.0.0.1:7790: assistants elsewhere come through ssh -L", c.Listen)
	}
	token := os.Getenv(tokenVariable)
	if token == "" {
		token = web.NewToken()
		fmt.Fprintf(s.err, "slowray: the token is %s\n", token)
	}
	fmt.Fprintf(s.err, "slowray: answering at http://%s/ until Ctrl-C\n", l.Address())
	const (
		// Any local user can connect: without the token nobody keeps a place for longer
		// than a header takes on loopback.
		headerTime, idleTime, endTime = 2 * time.Second, 20 * time.Second, time.Second
		connections                   = 64
	)
	server := &http.Server{Handler: assistant.Handler(m, token), ReadHeaderTimeout: headerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10}
	done := make(chan error, 1)
	go func() { done <- server.Serve(accept.Within(l, accept.Limits{Most: connections, Wait: true})) }()
	select {
	case err := <-done:
		return fmt.Errorf("mcp: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if server.Shutdown(end) != nil {
		server.Close() // streams stay open until their client goes
	}
	<-done
	return nil
}

// pastAnswers is the answers of the page over a history, opened when it is first asked for.
type pastAnswers struct {
	dir string

	mu     sync.Mutex
	reader *store.Reader
	page   http.Handler
}

func (h *pastAnswers) handler() (http.Handler, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.page != nil {
		return h.page, nil
	}
	r, err := (&atFlags{Dir: h.dir}).open()
	if err != nil {
		return nil, err
	}
	from, to, err := r.Span()
	if err == nil && from.IsZero() {
		err = fmt.Errorf("there is nothing of a history in %s yet: slowray record keeps one", h.dir)
	}
	if err == nil {
		h.page, err = web.New(r, web.Options{Version: version(), Host: recordedHost(r, from, to), Loopback: true})
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	h.reader = r
	return h.page, nil
}

func (h *pastAnswers) close() {
	if h.reader != nil {
		h.reader.Close()
	}
}

// asking are the commands that an assistant may have run, with the flags that it may
// choose: none of them changes anything.
var asking = map[string][]string{
	"why":       {"--json", "--for", "--at", "--port", "--pid", "--unit", "--container", "--pod"},
	"top":       {"--json", "--once", "--every"},
	"requests":  {"--format", "--for", "--port"},
	"prove":     {"--json", "--port", "--pid", "--unit", "--container"},
	"fleet why": {"--json", "--service", "--host", "--at", "--for"},
}

// mayAsk refuses every command line that is not one of those.
func mayAsk(args []string) error {
	words := len(args)
	for i, a := range args {
		if strings.HasPrefix(a, "-") {
			words = min(words, i)
		}
	}
	command, flags := strings.Join(args[:words], " "), args[words:]
	if words == 2 && args[0] == "prove" && slices.ContainsFunc(cause.Catalogue(), func(c cause.Cause) bool { return string(c.ID) == args[1] }) {
		command = args[0]
	}
	may, ok := asking[command]
	for _, a := range flags {
		name, _, _ := strings.Cut(a, "=")
		ok = ok && slices.Contains(may, name)
	}
	if !ok {
		return fmt.Errorf("slowray %q: is not to be asked by an assistant", args)
	}
	return nil
}

const (
	maxSaid = 32 << 20 // bytes of an answer
	maxTold = 4 << 10  // of what it says of errors
	// patience is how long a command may take to end once nobody waits for it.
	patience = 3 * time.Second
)

// ask runs slowray itself.
func (c *mcpCmd) ask(ctx context.Context, args ...string) ([]byte, error) {
	if err := mayAsk(args); err != nil {
		return nil, err
	}
	if args[0] == "why" && slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--at=") }) {
		args = append(args, "--dir="+c.Dir)
	}
	said, told := &budget.Prefix{Most: maxSaid}, &budget.Prefix{Most: maxTold}
	child := exec.CommandContext(ctx, "/proc/self/exe", args...)
	child.Args[0] = os.Args[0]
	child.Stdout, child.Stderr = said, told
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGINT) }
	child.WaitDelay = patience
	// Should this be killed, the child ends too. The kernel means the thread that made it.
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	runtime.LockOSThread()
	err := child.Run()
	runtime.UnlockOSThread()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case said.Over:
		return nil, fmt.Errorf("slowray %s: said more than %d bytes", args[0], maxSaid)
	case errors.As(err, &ended) && ended.ExitCode() == exitFindings:
		return said.Text, nil
	case err != nil:
		lines := strings.Split(strings.TrimSpace(string(told.Text)), "\n")
		if last := strings.TrimPrefix(lines[len(lines)-1], "slowray: "); last != "" {
			err = errors.New(last)
		}
	}
	return said.Text, err
}
