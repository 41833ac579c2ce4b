package goroutine

import "testing"

func TestCallsAndServes(t *testing.T) {
	stack := func(functions ...string) *Goroutine {
		g := &Goroutine{State: Waiting, Wait: Select}
		for _, f := range functions {
			g.Stack = append(g.Stack, Frame{Function: f})
		}
		return g
	}
	for _, c := range []struct {
		name          string
		g             *Goroutine
		calls, serves bool
	}{
		{"a handler that calls", stack("net/http.(*persistConn).roundTrip", "net/http.(*Client).do", "main.ask", "net/http.serverHandler.ServeHTTP"), true, true},
		{"a handler that waits for a connection", stack("net/http.(*Transport).getConn", "main.ask", "net/http.serverHandler.ServeHTTP"), false, true},
		{"a handler that waits for its own", stack("main.acquire", "net/http.serverHandler.ServeHTTP"), false, true},
		{"a poller", stack("google.golang.org/grpc/internal/transport.(*recvBufferReader).readClient", "main.poll"), true, false},
		{"nothing known", stack(), false, false},
	} {
		if c.g.Calls() != c.calls || c.g.Serves() != c.serves {
			t.Errorf("%s: calls %v, serves %v", c.name, c.g.Calls(), c.g.Serves())
		}
	}
}
