package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCPAsksForReadingOnly: whatever the tools put together, these are never run.
func TestMCPAsksForReadingOnly(t *testing.T) {
	for _, line := range []string{
		"prove conntrack-full --apply", "prove conntrack-full --apply=true", "prove conntrack-full --keep", "prove conntrack-full --load=reboot", "prove x", "prove x -- --apply",
		"tune", "undo", "record --to=x", "why --save=/etc/passwd", "why --dir=/x", "requests --from=/etc/shadow", "fleet why --from=x", "lab run x", "func sh", "fleet init",
	} {
		if mayAsk(strings.Fields(line)) == nil {
			t.Errorf("slowray %s: would be run", line)
		}
	}
	for _, line := range []string{"why --json --for=10s --port=80", "prove conntrack-full --json --unit=a=--apply", "fleet why --json --host=h", "top --once --every=2s --json"} {
		if err := mayAsk(strings.Fields(line)); err != nil {
			t.Errorf("slowray %s: %v", line, err)
		}
	}
}

// TestMCP talks to the real program over its standard input and output, about a history.
func TestMCP(t *testing.T) {
	history, err := filepath.Abs("../../internal/store/testdata/history/2026-11-26")
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(history)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "mcp", "--dir", copied)
	cmd.Env = append(os.Environ(), beSlowray+"=1")
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := func(tool string, args map[string]any) string {
		t.Helper()
		begin := time.Now()
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil || r.IsError || len(r.Content) != 1 {
			t.Fatalf("%s: %v %+v", tool, err, r)
		}
		text := r.Content[0].(*mcp.TextContent).Text
		t.Logf("%s: %d bytes after %v", tool, len(text), time.Since(begin))
		return text
	}
	day := map[string]any{"at": "2026-11-22T00:00:00Z", "seconds": 24 * 3600}
	var services struct{ Services []struct{ Key string } }
	if err := json.Unmarshal([]byte(ask("services", day)), &services); err != nil || len(services.Services) == 0 {
		t.Fatalf("no service in the history: %v", err)
	}
	var slow struct {
		Source   string
		Requests []struct {
			ID string
		}
	}
	if err := json.Unmarshal([]byte(ask("slow_requests", day)), &slow); err != nil || slow.Source != "history" || len(slow.Requests) == 0 {
		t.Fatalf("no slow request: %v", err)
	}
	if text := ask("request", map[string]any{"id": slow.Requests[0].ID}); !strings.Contains(text, `"ledger_us"`) {
		t.Errorf("a request without its time breakdown: %s", text)
	}
	if text := ask("history", day); !strings.Contains(text, `"findings"`) {
		t.Errorf("%s", text)
	}
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "why", Arguments: map[string]any{"at": "1999-01-01T00:00:00Z"}})
	if err != nil || !r.IsError || !strings.Contains(r.Content[0].(*mcp.TextContent).Text, "no window") {
		t.Errorf("why of a time that was not recorded: %v %+v", err, r.Content)
	}
}

// TestMCPClientGoes: what a client has asked for ends when it goes, also by a signal that
// nobody can catch, and a message without end is refused.
func TestMCPClientGoes(t *testing.T) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"why","arguments":{"seconds":60}}}
`
	for name, end := range map[string]func(*exec.Cmd, io.WriteCloser) error{
		"client ends": func(_ *exec.Cmd, in io.WriteCloser) error { return in.Close() },
		"killed":      func(cmd *exec.Cmd, _ io.WriteCloser) error { return cmd.Process.Kill() },
		"no end of a message": func(_ *exec.Cmd, in io.WriteCloser) error {
			_, _ = in.Write(bytes.Repeat([]byte(" "), 4<<20)) // refused on the way
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "mcp", "--dir", t.TempDir())
			cmd.Env = append(os.Environ(), beSlowray+"=1")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe() // that nobody reads once the client has gone
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			if _, err := io.WriteString(in, hello); err != nil {
				t.Fatal(err)
			}
			var child string
			soon(t, 10*time.Second, "it asks a child", func() bool {
				for _, f := range glob(t, fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid)) {
					if text, _ := os.ReadFile(f); len(text) > 0 {
						child = strings.Fields(string(text))[0]
					}
				}
				return child != ""
			})
			time.Sleep(time.Second) // the child has begun to watch
			if err := end(cmd, in); err != nil {
				t.Fatal(err)
			}
			out.Close()
			ended := make(chan struct{})
			go func() { _ = cmd.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(15 * time.Second):
				t.Error("it stays")
			}
			soon(t, 15*time.Second, "the child ends", func() bool {
				_, err := os.Stat("/proc/" + child)
				return err != nil
			})
		})
	}
}

func glob(t *testing.T, pattern string) []string {
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func soon(t *testing.T, within time.Duration, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
