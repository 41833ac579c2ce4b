package assistant

import (
	"context"
	"io"
	"strings"
	"testing"
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
