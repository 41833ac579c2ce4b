package gateway

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/slowray/slowray/internal/accept"
)

// lastBatches is how long hosts that wait for an answer have when the gateway ends.
const lastBatches = 15 * time.Second

// writeTime is how long a host has from its request on to take the answer: longer than
// any question may take.
const writeTime = 3 * time.Minute

// Serve serves until ctx ends; then no host can connect any more, and those that wait
// get their answer.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: writeTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0)}
	most := accept.Share(2, maxConnections)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBatches)
		defer cancel()
		if srv.Shutdown(last) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(accept.Within(l, accept.Limits{Most: most, PerHost: max(most/hostShare, 1)}))
	if !stop() {
		<-ended
	}
	return err
}
