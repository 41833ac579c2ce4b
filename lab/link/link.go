package link

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"
)

// Direction is one way through a link.
type Direction int

// The directions.
const (
	AtoB Direction = iota
	BtoA
)

func (d Direction) String() string { return [...]string{"a→b", "b→a"}[d] }

// End is one end of a link.
type End struct {
	NetNS *os.File       // an open /proc/PID/ns/net; may be closed after Open
	Name  string         // of the device, up to 15 characters; default "emu0"
	Addrs []netip.Prefix // of the device, IPv4 or IPv6; the prefix is what lies behind the link
}

// Settings of one direction. The zero value passes everything on at once.
type Settings struct {
	Delay  time.Duration // from one end to the other, without what the queue adds
	Jitter time.Duration // the delay of each packet differs by up to this, either way
	Loss   float64       // 0 … 1 of the packets, by chance
	Rate   float64       // bits per second, IP headers included; 0 = unlimited
	Queue  int           // packets that may wait for the rate before more are dropped; default 1000
}

// Config of a link.
type Config struct {
	A, B       End
	AtoB, BtoA Settings
	MTU        int    // default and maximum 1500
	Seed       uint64 // of what chance decides
}

// Link is a link that is up.
type Link struct {
	ways  [2]*way
	tuns  [2]*tun
	wg    sync.WaitGroup
	close sync.Once
	err   error
}

const mtuMax = 1500

// Open makes both devices, brings them up and starts passing packets on. It
// needs CAP_NET_ADMIN in both namespaces and /dev/net/tun.
func Open(cfg Config) (*Link, error) {
	if cfg.MTU == 0 {
		cfg.MTU = mtuMax
	}
	if cfg.MTU < 68 || cfg.MTU > mtuMax { // RFC 791: every module forwards 68 bytes
		return nil, fmt.Errorf("link: mtu %d: not in 68 … %d", cfg.MTU, mtuMax)
	}
	l := &Link{}
	for n, end := range []End{cfg.A, cfg.B} {
		t, err := openTUN(end, cfg.MTU)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("link: %w", err), l.closeTUNs())
		}
		l.tuns[n] = t
	}
	for n, s := range []Settings{cfg.AtoB, cfg.BtoA} {
		w, err := newWay(l.tuns[n].fd, l.tuns[1-n].fd, s, rand.NewPCG(cfg.Seed, uint64(n)))
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.ways[n] = w
		l.wg.Go(w.run)
	}
	return l, nil
}

// Set changes the settings of a direction for packets from now on. Packets
// that are under way keep their time.
func (l *Link) Set(d Direction, s Settings) { l.ways[d].set(s) }

// Pick loses chosen packets of a direction from now on, on top of what chance
// does; nil ends that. The count of Every begins anew.
func (l *Link) Pick(d Direction, p *Pick) { l.ways[d].pick(p) }

// Counters of a direction since Open.
func (l *Link) Counters(d Direction) Counters {
	c := l.ways[d].count.read()
	c.Overrun = l.tuns[d].dropped()
	return c
}

// Close ends the link and removes the devices. It may be called twice.
func (l *Link) Close() error {
	l.close.Do(func() {
		for _, w := range l.ways {
			if w != nil {
				w.stop()
			}
		}
		l.wg.Wait()
		for _, w := range l.ways {
			if w != nil {
				w.wake.close()
			}
		}
		l.err = l.closeTUNs()
	})
	return l.err
}

func (l *Link) closeTUNs() error {
	var errs []error
	for _, t := range l.tuns {
		if t != nil {
			errs = append(errs, t.close())
		}
	}
	return errors.Join(errs...)
}
