package load

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// clientsPerConn is how many clients share a connection in HTTP/2.
const clientsPerConn = 8

// transport is a connection in HTTP/2 under TLS. A server that speaks only HTTP/1.1
// gets a connection for each request at a time.
func (c *client) transport(number int) *http.Transport {
	return &http.Transport{
		DialContext:         c.dialer(number).DialContext,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: clientsPerConn,
	}
}

// stream makes one request next to others of its connection. A client that gives up
// resets the stream and leaves the connection to the others.
func (c *client) stream(ctx context.Context, over *http.Transport, start time.Time) {
	one, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	req, err := http.NewRequestWithContext(one, http.MethodGet, "https://"+c.Target+"/", nil)
	if err != nil {
		c.failed(ctx, err, &c.write)
		return
	}
	resp, err := over.RoundTrip(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		c.failed(ctx, err, &c.connect)
	case err != nil:
		c.failed(ctx, err, &c.read)
	default:
		c.answered(start, resp.StatusCode)
	}
}
