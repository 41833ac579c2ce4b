package request

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slowray/slowray/internal/observe"
)

// grpcCodeOf is what the server answers a call: it follows from the span that sent it.
func grpcCodeOf(t *observe.Trace) codes.Code {
	return [...]codes.Code{codes.OK, codes.OK, codes.Unavailable, codes.DeadlineExceeded}[t.Parent[7]&3]
}

// startGRPC serves any method; its answer follows from the call's traceparent.
func startGRPC(t *testing.T) (addr string, seen func() map[observe.Trace]string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	calls := map[observe.Trace]string{}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		from, _ := metadata.FromIncomingContext(stream.Context())
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		var trace observe.Trace
		if v := from.Get("traceparent"); len(v) == 1 {
			trace, _ = observe.ParseTraceparent(v[0])
			mu.Lock()
			calls[trace] = method
			mu.Unlock()
		}
		time.Sleep(time.Duration(trace.ID[0]&3) * time.Millisecond) // answers overtake each other
		if code := grpcCodeOf(&trace); code != codes.OK {
			return status.Error(code, "as asked for")
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return l.Addr().String(), func() map[observe.Trace]string { return calls }
}

// callGRPC calls methods over one connection, 16 at once; each third call is not instrumented.
func callGRPC(t *testing.T, conn *grpc.ClientConn, calls int) {
	var work sync.WaitGroup
	for worker := range 16 {
		work.Go(func() {
			for i := range calls / 16 {
				ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer token of a usual length, which is the same for all")
				if i%3 > 0 {
					var id [24]byte
					rand.Read(id[:])
					ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", fmt.Sprintf("00-%s-%s-01", hex.EncodeToString(id[:16]), hex.EncodeToString(id[16:])))
				}
				_ = conn.Invoke(ctx, fmt.Sprintf("/shop.Cart/Do%d", (worker+i)%5), &emptypb.Empty{}, &emptypb.Empty{})
			}
		})
	}
	work.Wait()
}

// TestTracesOfGRPC: calls of gRPC, many at once on a connection, carry the method, the status
// and the trace that the server saw, at both ends; also on a connection older than slowray.
func TestTracesOfGRPC(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root")
	}
	for _, older := range []bool{false, true} {
		t.Run(fmt.Sprintf("connection older than slowray: %v", older), func(t *testing.T) { tracesOfGRPC(t, older) })
	}
}

func tracesOfGRPC(t *testing.T, older bool) {
	addr, seen := startGRPC(t)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if older {
		callGRPC(t, conn, 64)
		clear(seen())
	}
	r, err := Start(Options{Labels: true, Budget: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.TellStreams(); err != nil {
		r.Close()
		t.Skipf("SKIP: streams cannot be told apart here: %v", err)
	}
	stream := NewStream(r)
	defer stream.Close()
	joined, wrong, label := map[observe.Side]int{}, 0, 0
	var mine []observe.Request
	port := conn.Target()[len("127.0.0.1:"):]
	sub := stream.Subscribe(func(q *observe.Request) {
		if q.Flags&observe.FlagMultiplexed != 0 && (fmt.Sprint(q.Local.Port()) == port || fmt.Sprint(q.Peer.Port()) == port) {
			mine = append(mine, *q)
		}
	})
	const calls = 1600
	callGRPC(t, conn, calls)
	conn.Close()
	time.Sleep(50 * time.Millisecond)
	if err := sub.End(); err != nil {
		t.Fatal(err)
	}
	truth := seen()
	for i := range mine {
		q := &mine[i]
		if !q.Trace.Known() {
			continue
		}
		method, known := truth[q.Trace]
		code := grpcCodeOf(&q.Trace)
		want := fmt.Sprintf("POST %s gRPC %d", method, code)
		failed := q.Status == observe.StatusError
		switch {
		case older && known && (q.Label == "POST "+method || q.Label == "") && q.Status == observe.StatusUnknown:
			joined[q.Side]++ // path and status may be in the tables from before
		case !known, q.Label != want && (q.Label != "" || !older), failed != (code != codes.OK):
			wrong++
			t.Logf("%s %x: label %q, want %q, status %v", q.Side, q.Trace.ID, q.Label, want, q.Status)
		default:
			joined[q.Side]++
		}
		if q.Label == want {
			label++
		}
	}
	t.Logf("%d requests at both ends of %d calls, %d of them instrumented: %d served and %d called have their trace, %d have a label, %d wrong; %d header blocks not seen",
		len(mine), calls, len(truth), joined[observe.Served], joined[observe.Called], label, wrong, stream.Stats().Blocks)
	if wrong > 0 {
		t.Errorf("%d wrong", wrong)
	}
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		if joined[side] < len(truth)*95/100 {
			t.Errorf("%s: %d of %d joined", side, joined[side], len(truth))
		}
	}
	if !older && label < 2*len(truth)*95/100 {
		t.Errorf("%d of %d have a label", label, 2*len(truth))
	}
}
