package load

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slowray/slowray/lab/rpc"
)

// clientsPerConn is how many clients share a connection in HTTP/2.
const clientsPerConn = 8

// over is a connection that clients share.
type over interface {
	// ask makes one request and gives the status of HTTP that says what became of it.
	ask(ctx context.Context, target string) (int, error)
}

// over is a connection in HTTP/2.
func (c *client) over(number int) over {
	dialer := c.dialer(number)
	if c.Load.RPC {
		conn, err := rpc.Dial(c.Target, c.Load.TLS, func(ctx context.Context, target string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", target)
		})
		return calls{conn, err}
	}
	return pages{&http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: clientsPerConn,
	}}
}

// pages is under TLS. A server that speaks only HTTP/1.1 gets a connection for each request
// at a time.
type pages struct{ over *http.Transport }

func (p pages) ask(ctx context.Context, target string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+target+"/", nil)
	if err != nil {
		return 0, err
	}
	resp, err := p.over.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// calls is gRPC.
type calls struct {
	over   *grpc.ClientConn
	failed error
}

func (r calls) ask(ctx context.Context, _ string) (int, error) {
	if r.failed != nil {
		return 0, r.failed
	}
	err := rpc.Call(ctx, r.over)
	switch code := status.Code(err); {
	case err == nil:
		return http.StatusOK, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case code == codes.Unavailable:
		return http.StatusBadGateway, nil
	default:
		return 0, err
	}
}

// stream makes one request next to others of its connection. A client that gives up
// resets the stream and leaves the connection to the others.
func (c *client) stream(ctx context.Context, over over, start time.Time) {
	one, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	code, err := over.ask(one, c.Target)
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		c.failed(ctx, err, &c.connect)
	case err != nil:
		c.failed(ctx, err, &c.read)
	default:
		c.answered(start, code)
	}
}
