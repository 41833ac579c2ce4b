package gateway

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// lastBatches is how long hosts that wait for an answer have when the gateway ends.
const lastBatches = 15 * time.Second

// Serve serves until ctx ends; then no host can connect any more, and those that wait
// get their answer.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBatches)
		defer cancel()
		if srv.Shutdown(last) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(l)
	if !stop() {
		<-ended
	}
	return err
}
