package lab

import (
	"fmt"

	"github.com/slowray/slowray/lab/drop"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/sandbox"
)

// way is what one direction of a wire did to packets, as the emulated link or
// the dropper counted it.
type way struct {
	Packets uint64 `json:"packets"`
	Lost    uint64 `json:"lost"`
	LateP99 int64  `json:"late_p99_ns,omitempty"` // how late the link was, p99 of packets

	link link.Counters
}

// wires has each direction that is not just a veth pair, by name.
type wires map[string]way

// readWires reads what was counted so far.
func readWires(box *sandbox.Box) wires {
	w := wires{}
	for name, j := range map[string]*sandbox.Join{"client": box.Front, "backend": box.Back} {
		if j == nil {
			continue
		}
		toServer, toFar := name+"→server", "server→"+name
		if j.Link != nil {
			w[toServer] = way{link: j.Link.Counters(link.AtoB)}
			w[toFar] = way{link: j.Link.Counters(link.BtoA)}
		}
		w.dropper(toServer, j.AtServer)
		w.dropper(toFar, j.AtFar)
	}
	return w
}

func (w wires) dropper(name string, d *drop.Dropper) {
	if d == nil {
		return
	}
	if c, err := d.Counters(); err == nil {
		w[name] = way{Packets: c.Matches, Lost: c.Dropped}
	}
}

// until is what was counted between two readings.
func (w wires) until(later wires) wires {
	if len(w) == 0 {
		return nil
	}
	for name, now := range later {
		before := w[name]
		now.Packets -= before.Packets
		now.Lost -= before.Lost
		if now.link.Received > 0 {
			c := now.link.Sub(before.link)
			now.Packets = c.Received + c.Overrun
			now.Lost = c.Lost + c.Picked + c.TailDropped + c.Refused + c.Overrun
			now.LateP99 = int64(c.LateQuantile(0.99))
		}
		later[name] = now
	}
	return later
}

func (w way) String() string {
	return fmt.Sprintf("%d of %d packets (%.2f %%)", w.Lost, w.Packets, 100*float64(w.Lost)/max(float64(w.Packets), 1))
}
