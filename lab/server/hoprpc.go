package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slowray/slowray/lab/rpc"
)

// Quote is the handler of a hop that speaks gRPC.
func (h *hopSpec) Quote(ctx context.Context, route string) (string, error) {
	h.enter()
	defer h.leave()
	if code := h.answer(ctx); code >= 400 {
		return "", status.Errorf(codes.Unavailable, "status %d behind", code)
	}
	return route + ": 17.50", nil
}

// askNextRPC calls the hop behind this one by gRPC.
func (h *hopSpec) askNextRPC(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, h.patience())
	defer cancel()
	if err := rpc.Call(ctx, h.next); err != nil {
		return 502
	}
	return 200
}
