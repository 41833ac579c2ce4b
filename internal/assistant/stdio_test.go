package assistant

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// end is an output that may be closed.
type end struct{ io.Writer }

func (end) Close() error { return nil }

// TestStdioAnswersWhatWasRead: input that ends at once after a question gets its answer.
func TestStdioAnswersWhatWasRead(t *testing.T) {
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"why","arguments":{"seconds":1}}}`,
	}, "\n") + "\n"
	m := New(Options{Version: "t", Command: func(ctx context.Context, _ ...string) ([]byte, error) {
		time.Sleep(50 * time.Millisecond)
		return []byte(`{}`), ctx.Err()
	}})
	var out strings.Builder
	_ = m.Run(t.Context(), Stdio(io.NopCloser(strings.NewReader(in)), end{&out}, nil))
	if !strings.Contains(out.String(), `"id":"q","result"`) {
		t.Errorf("%s", out.String())
	}
}

// TestStdioGoesOn: lines that are no messages are answered by JSON-RPC's own errors, and what was
// asked before and after them gets its answer.
func TestStdioGoesOn(t *testing.T) {
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		"\x00garbage",
		`{"jsonrpc":"2.0","id":2,"method":"ping"`,
		"",
		`[{"jsonrpc":"2.0","id":3,"method":"ping"}]`,
		`{"jsonrpc":"1.0","id":"four","method":"ping"}`,
		`{"jsonrpc":"2.0","id":{"five":5},"method":"ping"}`,
		`7`,
		`{"jsonrpc":"2.0","id":6,"method":"no/such"}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"no_such","arguments":{}}}`,
		"\r",
		`{"jsonrpc":"2.0","id":8,"method":"ping"}`,
	}, "\n") // the last one without its end
	var out strings.Builder
	_ = New(Options{Version: "t"}).Run(t.Context(), Stdio(io.NopCloser(iotest.OneByteReader(strings.NewReader(in))), end{&out}, nil))
	for _, want := range []string{`"id":8,"result"`, `"id":"four","error":{"code":-32600`, `"id":6,"error":{"code":-32601`, `"id":7,"error":{"code":-32602`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s", want)
		}
	}
	for code, want := range map[string]int{`"id":null,"error":{"code":-32700`: 2, `"id":null,"error":{"code":-32600`: 3} {
		if n := strings.Count(out.String(), code); n != want {
			t.Errorf("%d times %s, want %d", n, code, want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestStdioBoundsMessages: a message without an end is refused.
func TestStdioBoundsMessages(t *testing.T) {
	m := New(Options{Version: "t"})
	endless := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`), zeros{})
	if err := m.Run(t.Context(), Stdio(io.NopCloser(endless), end{io.Discard}, nil)); err == nil {
		t.Error("it was read to no end")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}
