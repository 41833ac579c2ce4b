package clickhouse

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/fleet/gateway"
)

// gateways are those that requests may go by, one at a time: the first, until it is not
// reached or breaks off, then the next.
type gateways struct {
	list    []string
	changes atomic.Uint32
}

type gatewayKey struct{}

// gatewayOf is the gateway that a request goes by.
func gatewayOf(ctx context.Context) string {
	name, _ := ctx.Value(gatewayKey{}).(string)
	return name
}

func by(ctx context.Context, gateway string) context.Context {
	return context.WithValue(ctx, gatewayKey{}, gateway)
}

// gatewayError is that a gateway did not answer.
type gatewayError struct {
	gateway string
	error
}

func (e *gatewayError) Unwrap() error { return e.error }

// each has a request done by way of a gateway, or directly where there is none. One that
// cannot have been seen by a gateway is done by way of the next.
func (g *gateways) each(ctx context.Context, do func(context.Context) error) error {
	if len(g.list) == 0 {
		return do(ctx)
	}
	for tries := 1; ; tries++ {
		at := g.changes.Load()
		name := g.list[int(at)%len(g.list)]
		err := do(by(ctx, name))
		var answered *serverError
		if err == nil || errors.As(err, &answered) && !(answered.before && answered.status == http.StatusServiceUnavailable) {
			return err // it was the server that did, or the gateway for it
		}
		g.changes.CompareAndSwap(at, at+1) // another stream may have left it already
		if !notBegun(err) || tries == len(g.list) || ctx.Err() != nil {
			return &gatewayError{name, err}
		}
	}
}

// goneTime is after how long a gateway that does not answer has dropped a batch.
var goneTime = gateway.GoneTime

// unsettled are the gateways that may still hold a batch of a stream, of which nobody
// knows what became, each with when it was last sent to it.
type unsettled map[string]time.Time

// note notes what an insert ended in.
func (u unsettled) note(err error) {
	var e *gatewayError
	if errors.As(err, &e) && !notBegun(err) {
		u[e.gateway] = time.Now()
	}
}

// settle returns when no gateway can hold a batch of a stream any more: it says so, or
// does not answer and would have dropped it by now. Where there is but one its answer is
// waited for.
func (u unsettled) settle(ctx context.Context, c *client, server, stream string) error {
	for name, at := range u {
		ask := by(ctx, name)
		cancel := context.CancelFunc(func() {})
		end := at.Add(goneTime)
		if len(c.gateways.list) > 1 {
			ask, cancel = context.WithDeadline(ask, end)
		}
		err := c.post(ask, server, gateway.SettlePath, url.Values{"stream": {stream}}, nil, nil)
		cancel()
		switch {
		case err == nil:
		case len(c.gateways.list) == 1:
			return err
		default:
			select {
			case <-time.After(time.Until(end)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		delete(u, name)
	}
	return nil
}
