package drop

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/cilium/ebpf/rlimit"

	"github.com/slowray/slowray/lab/netns"
)

// Rule says which packets are lost. The zero value loses none.
type Rule struct {
	Every   int  // each Every-th packet that matches, to the packet
	PPM     int  // of a million packets that match, by chance
	Port    int  // match TCP segments from or to this port only; 0 = every packet of IPv4 and IPv6
	Payload bool // match TCP segments with payload only
}

// None reports whether nothing is lost.
func (r Rule) None() bool { return r.Every == 0 && r.PPM == 0 }

// Counters of a dropper, in packets.
type Counters struct {
	Packets uint64 `json:"packets"` // that came in at the device, of any protocol
	Matches uint64 `json:"matches"`
	Dropped uint64 `json:"dropped"`
}

// Dropper loses packets of one device.
type Dropper struct {
	objects objectObjects
	index   int
	ns      *os.File
}

// Attach begins to lose packets that come in at a device. It needs CAP_BPF and
// CAP_NET_ADMIN. The device's clsact qdisc must be free.
func Attach(ns *os.File, device string, rule Rule) (*Dropper, error) {
	d, err := attach(ns, device, rule)
	if err != nil {
		return nil, fmt.Errorf("drop: %s: %w", device, err)
	}
	return d, nil
}

func attach(ns *os.File, device string, rule Rule) (*Dropper, error) {
	rlimit.RemoveMemlock() // needed before Linux 5.11 only
	spec, err := loadObject()
	if err != nil {
		return nil, err
	}
	payload := uint8(0)
	if rule.Payload {
		payload = 1
	}
	for name, value := range map[string]any{
		"every": uint32(rule.Every), "ppm": uint32(rule.PPM), "port": uint16(rule.Port), "payload": payload,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	d := &Dropper{}
	if err := spec.LoadAndAssign(&d.objects, nil); err != nil {
		return nil, err
	}
	if d.ns, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", ns.Fd())); err != nil {
		return nil, errors.Join(err, d.objects.Close())
	}
	err = netns.Do(ns, func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		d.index = dev.Index
		return attachIngress(dev.Index, d.objects.Lose.FD(), "lab/lose")
	})
	if err != nil {
		return nil, errors.Join(err, d.objects.Close(), d.ns.Close())
	}
	return d, nil
}

// Counters since Attach.
func (d *Dropper) Counters() (Counters, error) {
	var c Counters
	return c, errors.Join(d.objects.Packets.Get(&c.Packets), d.objects.Matches.Get(&c.Matches), d.objects.Dropped.Get(&c.Dropped))
}

// Close ends the losses, unless the namespace is gone already.
func (d *Dropper) Close() error {
	err := netns.Do(d.ns, func() error { return detachIngress(d.index) })
	return errors.Join(err, d.objects.Close(), d.ns.Close())
}
