package goroutine

import (
	"context"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

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
		{"a handler that calls by gRPC", stack("google.golang.org/grpc/internal/transport.(*ClientStream).waitOnHeader", "main.ask", "google.golang.org/grpc.(*Server).processUnaryRPC"), true, true},
		{"nothing known", stack(), false, false},
	} {
		if c.g.Calls() != c.calls || c.g.Serves() != c.serves {
			t.Errorf("%s: calls %v, serves %v", c.name, c.g.Calls(), c.g.Serves())
		}
	}
}

// Who waits for the answer of a service of gRPC is known by the functions of the version that
// is built here: before anything of it has come, and in the middle of it.
func TestClientOfGRPC(t *testing.T) {
	for _, begun := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if begun {
				if err := stream.SendHeader(nil); err != nil {
					return err
				}
			}
			<-stream.Context().Done()
			return nil
		}))
		go func() { _ = s.Serve(l) }()
		over, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		called := make(chan error)
		go func() { called <- over.Invoke(ctx, "/desk/quote", &emptypb.Empty{}, &emptypb.Empty{}) }()
		var last *Goroutine
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if last = caller(); last != nil && last.Calls() {
				break
			}
		}
		if last == nil || !last.Calls() {
			t.Errorf("headers came %v: who waits for the answer is not known to call: %+v", begun, last)
		}
		cancel()
		<-called
		over.Close()
		s.Stop()
	}
}

// caller is the goroutine that calls by gRPC; nil where it has not got that far.
func caller() *Goroutine {
	text := make([]byte, 1<<20)
	for one := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
		g := &Goroutine{State: Waiting, Wait: Select}
		for line := range strings.SplitSeq(one, "\n") {
			if at := strings.LastIndexByte(line, '('); at > 0 && line[0] != '\t' {
				g.Stack = append(g.Stack, Frame{Function: line[:at]})
			}
		}
		if slices.ContainsFunc(g.Stack, func(f Frame) bool { return f.Function == "google.golang.org/grpc.(*ClientConn).Invoke" }) {
			return g
		}
	}
	return nil
}
