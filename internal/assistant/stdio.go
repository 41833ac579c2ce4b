package assistant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Stdio is the transport over a program's standard input and output. Its input ends when
// everything that was asked has been answered: `printf … | slowray mcp` gets its answers,
// which a server that ends with its input would leave out. Nobody waits for them any more
// once gone says so; it may be nil. A line that is no message is answered by an error
// (JSON-RPC 2.0, 5.1) and nothing else ends by it.
func Stdio(in io.ReadCloser, out io.WriteCloser, gone func() bool) mcp.Transport {
	p := &pending{open: map[string]int{}, gone: gone}
	p.answered = sync.NewCond(&p.mu)
	answers := &answering{WriteCloser: out, p: p}
	return &mcp.IOTransport{Reader: &asking{ReadCloser: in, p: p, answers: answers}, Writer: answers}
}

// pending is the questions that were read and are not answered, by their id as it is written.
type pending struct {
	mu       sync.Mutex
	answered *sync.Cond
	open     map[string]int
	closed   bool
	gone     func() bool
}

// lines calls f with each line of what goes by, which comes in pieces.
type lines struct{ rest []byte }

func (l *lines) add(b []byte, f func(line []byte)) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			l.rest = append(l.rest, b...)
			return
		}
		if len(l.rest) > 0 {
			f(append(l.rest, b[:i]...))
			l.rest = l.rest[:0]
		} else {
			f(b[:i])
		}
		b = b[i+1:]
	}
}

// asking notes what is asked, and hands on what is a message.
type asking struct {
	io.ReadCloser
	p       *pending
	answers *answering
	lines   lines
	ready   []byte // messages that nobody has read yet
	ended   error
}

func (a *asking) Read(b []byte) (int, error) {
	for len(a.ready) == 0 {
		if a.ended != nil {
			if a.ended == io.EOF {
				a.p.wait()
			}
			return 0, a.ended
		}
		n, err := a.ReadCloser.Read(b) // which are only in hand until they are looked at
		a.lines.add(b[:n], a.line)
		if len(a.lines.rest) > maxQuestion {
			return 0, fmt.Errorf("a message of more than %d bytes", maxQuestion)
		}
		if a.ended = err; err == io.EOF {
			a.lines.add([]byte{'\n'}, a.line) // the last one may lack it
		}
	}
	n := copy(b, a.ready)
	a.ready = a.ready[n:]
	return n, nil
}

// line takes a line of the input.
func (a *asking) line(line []byte) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	if !json.Valid(line) {
		a.answers.refuse(nil, jsonrpc.CodeParseError, "this line is not JSON; one message a line")
		return
	}
	if line[0] == '[' {
		a.answers.refuse(nil, jsonrpc.CodeInvalidRequest, "one message a line, and no batch")
		return
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		_ = json.Unmarshal(line, &m) // without an id it is answered, too
		a.answers.refuse(m.ID, jsonrpc.CodeInvalidRequest, err.Error())
		return
	}
	a.p.note(line, 1)
	a.ready = append(append(a.ready, line...), '\n')
}

func (a *asking) Close() error {
	a.p.mu.Lock()
	a.p.closed = true
	a.p.answered.Broadcast()
	a.p.mu.Unlock()
	return a.ReadCloser.Close()
}

// answering notes what is answered.
type answering struct {
	io.WriteCloser
	p     *pending
	mu    sync.Mutex // a line is written as a whole
	lines lines
}

func (a *answering) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := bytes.Replace(b, unknownMethod, methodNotFound, 1)
	n, err := a.WriteCloser.Write(line)
	if a.lines.add(line[:n], func(line []byte) { a.p.note(line, -1) }); err == nil {
		n = len(b)
	}
	return min(n, len(b)), err
}

// What the SDK (1.6.1) answers to a method that it does not know, and what JSON-RPC has for that.
var (
	unknownMethod  = []byte(`"error":{"code":0,"message":"JSON RPC not handled: `)
	methodNotFound = fmt.Appendf(nil, `"error":{"code":%d,"message":"method not found: `, jsonrpc.CodeMethodNotFound)
)

// refuse answers a line that is no message; id may be nil.
func (a *answering) refuse(id json.RawMessage, code int64, text string) {
	if kind := bytes.TrimLeft(id, "0123456789-"); len(id) == 0 || len(kind) > 0 && kind[0] != '"' {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", id, jsonrpc.Error{Code: code, Message: text}})
	if err != nil {
		return
	}
	_, _ = a.Write(append(line, '\n')) // who does not read what it asked for ends the next write, too
}

// note counts a question, or takes the one away that is answered.
func (p *pending) note(line []byte, by int) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(line, &m) != nil || len(m.ID) == 0 || (m.Method != "") != (by > 0) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[string(m.ID)] += by; p.open[string(m.ID)] <= 0 {
		delete(p.open, string(m.ID))
	}
	p.answered.Broadcast()
}

// longest is how long the end of the input waits for answers: a question takes a minute
// at most, and one that is never answered must not keep this from ending.
const longest = 90 * time.Second

const lookEvery = 200 * time.Millisecond

func (p *pending) wait() {
	done := make(chan struct{})
	defer close(done)
	go func() {
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for begin := time.Now(); time.Since(begin) < longest && (p.gone == nil || !p.gone()); {
			select {
			case <-done:
				return
			case <-look.C:
			}
		}
		p.mu.Lock()
		p.closed = true
		p.answered.Broadcast()
		p.mu.Unlock()
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.open) > 0 && !p.closed {
		p.answered.Wait()
	}
}
