package watch

import (
	"context"

	"github.com/slowray/slowray/internal/observe"
)

// Drops watches only what throws packets away, for slowray drops: the rest of
// an Observation stays empty. It fails where dropped packets cannot be seen.
func Drops(ctx context.Context, opt Options) (*observe.Observation, error) {
	return watch(ctx, &session{opt: opt, onlyDrops: true}, "dropped packets", "use", "listeners", "sockets", "processes")
}
