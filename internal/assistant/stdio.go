package assistant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Stdio is the transport over a program's standard input and output. Its input ends when
// everything that was asked has been answered: `printf … | slowray mcp` gets its answers,
// which a server that ends with its input would leave out. Nobody waits for them any more
// once gone says so; it may be nil.
func Stdio(in io.ReadCloser, out io.WriteCloser, gone func() bool) mcp.Transport {
	p := &pending{open: map[string]int{}, gone: gone}
	p.answered = sync.NewCond(&p.mu)
	return &mcp.IOTransport{Reader: &asking{ReadCloser: in, p: p}, Writer: &answering{WriteCloser: out, p: p}}
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

// asking notes what is asked.
type asking struct {
	io.ReadCloser
	p     *pending
	lines lines
}

func (a *asking) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.lines.add(b[:n], func(line []byte) { a.p.note(line, 1) })
	if len(a.lines.rest) > maxQuestion {
		return 0, fmt.Errorf("a message of more than %d bytes", maxQuestion)
	}
	if n == 0 && err == io.EOF {
		a.p.wait()
	}
	return n, err
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
	lines lines
}

func (a *answering) Write(b []byte) (int, error) {
	n, err := a.WriteCloser.Write(b)
	a.lines.add(b[:n], func(line []byte) { a.p.note(line, -1) })
	return n, err
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
