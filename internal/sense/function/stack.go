package function

import (
	"context"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// call is one that was handed over.
type call struct {
	callLayout
	stack, kernel []symbol.Location // leaf first
}

// locate takes hold of what the stacks of a call lead through, while its
// process is there. returned says that they were taken when the call returned,
// and not where a place was passed.
func (c *call) locate(space *symbol.Space, returned bool) {
	if n := int(c.UserBytes) / 8; n > 0 {
		p := space.Process(int(c.PidTgid >> 32))
		for i, addr := range c.User[:min(n, len(c.User))] {
			if i > 0 || (returned && c.Caller == 0) {
				addr-- // a return address lies behind the call
			}
			at := p.Location(addr)
			if i > 0 && !at.Known() {
				break // code without frame pointers: what follows is no stack
			}
			c.stack = append(c.stack, at)
			if i == 0 && c.Caller != 0 {
				c.stack = append(c.stack, p.Location(symbol.ReturnAddress(c.Caller)-1))
			}
		}
	}
	if n := int(c.KernelBytes) / 8; n > 0 {
		for _, addr := range c.Kernel[:min(n, len(c.Kernel))] {
			c.kernel = append(c.kernel, space.Kernel(addr))
		}
	}
}

// nameStacks gives the stacks of all calls that are kept their names: for each
// probe and call, the frames of its process and of the kernel.
func (t *Tracer) nameStacks() func(probe, call int) (stack, kernel []observe.Frame) {
	var all []symbol.Location
	for i := range t.slowest {
		for j := range t.slowest[i] {
			all = append(append(all, t.slowest[i][j].stack...), t.slowest[i][j].kernel...)
		}
	}
	frames, _ := t.space.Frames(budget.New(context.Background(), symbol.Limits), all)
	named := make(map[symbol.Location]observe.Frame, len(all))
	for i, at := range all {
		named[at] = frames[i]
	}
	of := func(list []symbol.Location) []observe.Frame {
		var out []observe.Frame
		for _, at := range list {
			out = append(out, named[at])
		}
		return out
	}
	return func(probe, call int) (stack, kernel []observe.Frame) {
		c := &t.slowest[probe][call]
		return of(c.stack), of(c.kernel)
	}
}
